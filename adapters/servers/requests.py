"""What servers are asked and what they answer, by workers and by each other: values of the wire (loads no numpy).

Each request but `Ping` names the version of the `SlotTable` that the asker goes by. A server that goes
by a newer one refuses with "moved" and its own version; what is asked under a newer one than the server's waits until
the server has read that table. Arrays that go with a request or an answer are named in its docstring, in their order.
"""

from typing import Annotated, Literal

from ...master.machine.parameter_servers import ServerMeasure
from ...master.servers.slot_table import SLOTS
from ...rendezvous.base.frozen import dataclass
from ...rendezvous.wire.fields import Name as Incarnation
from ...rendezvous.wire.fields import Number
from ...rendezvous.wire.values import Count, Tagged, Text
from .specs import Name, TableSpec

Slots = Annotated[str, Text(SLOTS // 4, printable=True)]
"""A set of slots, a bit each: see `slot_sets.py`. Empty: none."""

PartitionName = Annotated[str, Text(300)]

MOST_TABLES = 1024

MOST_PARTITIONS = 1000

Names = Annotated[tuple[Name, ...], Count(MOST_TABLES)]


@dataclass(frozen=True, slots=True)
class PushSource:
    """Which records a push is of.

    Attributes:
        dataset: the name of the dataset.
        shard_index: of the shard, in the order of all epochs.
        lease: the shard's how many-th: one that follows a lost worker's has a higher number.
        begin, end: records of the shard, in the order of their use; of a stream, offsets.
        at: when the worker made it, in milliseconds since 1970: the same for all servers, however often it is sent.
        last: no record of the shard follows.
        partition: of a stream, whose shards have no index; else empty.
    """

    dataset: Name
    shard_index: Number
    lease: Number
    begin: Number
    end: Number
    at: Number = 0
    last: bool = False
    partition: PartitionName = ""


@dataclass(frozen=True, slots=True)
class Offsets:
    """Of a stream: the offsets of a partition from `first` to the one before `stop`."""

    partition: PartitionName
    first: Number
    stop: Number


Floors = Annotated[tuple[Offsets, ...], Count(MOST_PARTITIONS)]
"""Of a stream: offsets of which nothing is ever leased again."""


@dataclass(frozen=True, slots=True)
class OpenTable(Tagged):
    """Declares a table; the first to do so makes it. Answered when the backups have it."""

    table: TableSpec
    version: Number


@dataclass(frozen=True, slots=True)
class PullRows(Tagged):
    """Wants rows, and changes nothing. With it comes an array of ids (int64) for each table, all of slots whose primary
    the server is; with the answer, values (n, columns) for each, of its `TableSpec.dtype`.

    Attributes:
        given: ids that the worker's batch had before each was taken once: this server's share of them.
    """

    tables: Names
    version: Number
    given: Number = 0


@dataclass(frozen=True, slots=True)
class PushGradients(Tagged):
    """Applies gradients, and moves the shard's mark in all slots whose primary the server is, also without ids.

    With it come an array of ids, each once and of these slots, and one of gradients, of the table's dtype, for each
    table in turn. Answered when the backups have applied it, too. To send it again, under any version, does no harm.
    """

    tables: Names
    source: PushSource
    version: Number


@dataclass(frozen=True, slots=True)
class StepShare:
    """Whose part of a step of all ranks something is.

    Attributes:
        rank: of these.
        world: how many ranks have a part each.
    """

    rank: Number
    world: Number


@dataclass(frozen=True, slots=True)
class PrepareGradients(Tagged):
    """One rank's part of a step of all ranks: kept, and not applied, until `ApplyStep` says that the step counts.

    Arrays as with `PushGradients`. In `source`, which but for the time is the same on all ranks, the shard is an epoch,
    and the lease the round of the ranks. Answered when the backups have it, too. To send it again does no harm.
    """

    tables: Names
    source: PushSource
    share: StepShare
    version: Number


WHOLE_EPOCH = (1 << 53) - 1
"""In place of the end of an epoch's last step."""


@dataclass(frozen=True, slots=True)
class ApplyStep(Tagged):
    """The records of an epoch before `end` are in the model: the step up to there, which all ranks have prepared under
    this lease or an earlier one, is applied; nothing changes where it is already.

    Refused with "records" where the slots are not as far, and some rank has not prepared it. Answered when the backups
    have applied it.
    """

    dataset: Name
    shard_index: Number
    lease: Number
    end: Number
    version: Number


@dataclass(frozen=True, slots=True)
class ReadMarks(Tagged):
    """Wants to know how far a shard is applied; from then on its earlier leases push nothing more.

    Answered after all pushes that came before, with `Reply.marks`.

    Attributes:
        offsets: what the shard is, of a stream; it has no index.
        floors: of the stream's partitions.
    """

    dataset: Name
    shard_index: Number
    lease: Number
    version: Number
    offsets: Offsets | None = None
    floors: Floors = ()


@dataclass(frozen=True, slots=True)
class ReadStream(Tagged):
    """Wants to know which offsets of a stream are applied in all slots whose primary the server is.

    With the answer come two arrays: the names of partitions, as JSON (uint8), and (n, 3) int64: which of them, the
    first offset, and the one after the last, in order.
    """

    dataset: Name
    version: Number


@dataclass(frozen=True, slots=True)
class ReadPiece(Tagged):
    """Wants a piece of what a table has in slots whose primary the server is.

    With the answer come ids and values of some rows from the `first` place on. `Reply.count` is the `first` of
    the next piece, and the same as was asked after the last; a piece can be empty before that.
    """

    table: Name
    first: Number
    version: Number


@dataclass(frozen=True, slots=True)
class Ping(Tagged):
    """Answered at once, with `Reply.measure`."""


WorkerRequest = (
    OpenTable | PullRows | PushGradients | PrepareGradients | ApplyStep | ReadMarks | ReadStream | ReadPiece | Ping
)


@dataclass(frozen=True, slots=True)
class ForwardOpen(Tagged):
    """To a backup or a joining server: has a table as the `sender` declares it."""

    sender: Incarnation
    table: TableSpec
    version: Number


@dataclass(frozen=True, slots=True)
class ForwardPush(Tagged):
    """To a backup, before the primary applies it: as `PushGradients`, of these slots, whose primary the sender is.

    The receiver is their backup by the table, or has a whole copy that the table does not name yet; where it has none
    it refuses with "copy". It judges by its own marks.
    """

    sender: Incarnation
    tables: Names
    source: PushSource
    slots: Slots
    version: Number


@dataclass(frozen=True, slots=True)
class ForwardPrepare(Tagged):
    """To a backup, before the primary keeps it: as `PrepareGradients`, of these slots; refused as `ForwardPush` is."""

    sender: Incarnation
    tables: Names
    source: PushSource
    share: StepShare
    slots: Slots
    version: Number


@dataclass(frozen=True, slots=True)
class ForwardLease(Tagged):
    """To a backup: `ReadMarks` was asked under this lease; pushes of earlier ones are refused from now on."""

    sender: Incarnation
    dataset: Name
    shard_index: Number
    lease: Number
    version: Number
    offsets: Offsets | None = None
    floors: Floors = ()


@dataclass(frozen=True, slots=True)
class BeginCopy(Tagged):
    """To a joining server: a copy of these slots begins, and it forgets whatever it has of them.

    Attributes:
        number: of this copy, among all that the sender begins.
        tables: all that the sender has.
    """

    sender: Incarnation
    number: Number
    slots: Slots
    tables: Annotated[tuple[TableSpec, ...], Count(MOST_TABLES)]
    version: Number


@dataclass(frozen=True, slots=True)
class CopyRows(Tagged):
    """Rows of a copy. With it come ids, values, each of the optimizer's states, and the steps (empty: it has none)."""

    sender: Incarnation
    number: Number
    table: Name
    version: Number


@dataclass(frozen=True, slots=True)
class CopyPush(Tagged):
    """A push that the sender applies while it copies: for rows that the copy has already. Arrays as `PushGradients`."""

    sender: Incarnation
    number: Number
    tables: Names
    version: Number


@dataclass(frozen=True, slots=True)
class CopyChange(Tagged):
    """What a push has changed at the sender in a table whose rows come and go: which there are, the sender decides.

    With it come ids whose rows have gone, and others' rows, as with `CopyRows`.
    """

    sender: Incarnation
    number: Number
    table: Name
    version: Number


@dataclass(frozen=True, slots=True)
class CopyPrepared(Tagged):
    """What a rank has prepared in these slots of a copy; all rows of the copy are there. Arrays as `PushGradients`."""

    sender: Incarnation
    number: Number
    tables: Names
    source: PushSource
    share: StepShare
    slots: Slots
    version: Number


@dataclass(frozen=True, slots=True)
class EndCopy(Tagged):
    """All rows of a copy of these slots are there. With it come its marks, as `Marks.take_slots` gives them.

    Attributes:
        datasets: the names that the arrays count from 0.
    """

    sender: Incarnation
    number: Number
    slots: Slots
    datasets: Names
    version: Number


@dataclass(frozen=True, slots=True)
class ConfirmCopy(Tagged):
    """To a joining server: has it whole copies of these slots still? Where it has not, it refuses with "copy"."""

    sender: Incarnation
    slots: Slots
    version: Number


@dataclass(frozen=True, slots=True)
class AskApplied(Tagged):
    """From a primary that became a backup with a push on its way, to the primary after it: have you applied that push?

    `Reply.applied` says in which of these slots.
    """

    sender: Incarnation
    source: PushSource
    slots: Slots
    version: Number


PeerRequest = (
    ForwardOpen
    | ForwardPush
    | ForwardPrepare
    | ForwardLease
    | BeginCopy
    | CopyRows
    | CopyPush
    | CopyChange
    | CopyPrepared
    | EndCopy
    | ConfirmCopy
    | AskApplied
)

Request = WorkerRequest | PeerRequest

Refusal = Literal["", "misused", "full", "records", "moved", "copy"]


@dataclass(frozen=True, slots=True)
class Reply:
    """What a server answers; arrays may come with it.

    Attributes:
        refused: why nothing of the request was done: "misused" by the script, "full", "records" (see `marks.py`),
            "moved" where the server goes by another table; between servers also "copy": begin it again.
        text: in words.
        version: of the server's table.
        count: rows that were changed; rows of the table; the next piece.
        marks: how many records of the shard, from its beginning, are applied: each number that is true of some slot
            whose primary this server is, sorted; one of them at least, where it is the primary of any. More than there
            are: all.
            Of a stream: from which offset to which the first are that some of these slots have not; none: all have.
        applied: see `AskApplied`; of a `ForwardPush` that is "full", the slots in which it was applied before.
        measure: see `Ping`.
    """

    refused: Refusal = ""
    text: str = ""
    version: Number = 0
    count: Number = 0
    marks: Annotated[tuple[Number, ...], Count(SLOTS)] = ()
    applied: Slots = ""
    measure: ServerMeasure | None = None
