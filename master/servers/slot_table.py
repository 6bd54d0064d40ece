"""Which parameter server holds which ids: a value of the store, which the job's leader writes under its fence.

Ids are divided into SLOTS slots by their hash. Each slot has a *primary*, which answers for it; a *backup*, which has
applied everything that the primary has; and while a copy is on its way a *joining* server, which has not yet. A table's
`version` is its generation: whoever serves, asks or copies names the version that it goes by, and is refused by one of
another version.
"""

from typing import Annotated

from ...rendezvous.base.frozen import dataclass
from ...rendezvous.wire.fields import Name, Number, Words
from ...rendezvous.wire.values import Count, Text, Within

SLOTS = 1024

MOST_SERVERS = 256

NOBODY = -1
"""In place of a server's index."""

Address = Annotated[str, Text(300, printable=True)]

Index = Annotated[int, Within(NOBODY, MOST_SERVERS - 1)]

Holders = Annotated[tuple[Index, ...], Count(SLOTS)]
"""For each slot, the index of a server in `SlotTable.servers`."""


@dataclass(frozen=True, slots=True)
class ServerPlace:
    """Where the job wants a server: the node's agent keeps one there.

    Attributes:
        number: of the server, from 0: whoever runs in this place has it.
        node: its name.
    """

    number: Number
    node: Name


@dataclass(frozen=True, slots=True)
class RunningServer:
    """One server process, as its agent writes it into the store under its node's lease.

    Attributes:
        number: of its place.
        incarnation: another one for each process.
        node: its node's name.
        local: its abstract Unix socket, `@` and the name: for processes of the same machine and user.
        remote: `host:port` for those of other machines; empty where the job has one node.
        joined: the version of a table all of whose copies from this server are whole.
        saved: the last checkpoint of which it has written its part.
        rows_from: `SlotTable.rows_from` when it was started: of other rows it knows nothing.
    """

    number: Number
    incarnation: Name
    node: Name
    local: Address = ""
    remote: Address = ""
    joined: Number = 0
    saved: Number = 0
    rows_from: Number = 0


@dataclass(frozen=True, slots=True)
class SlotTable:
    """Who holds which slot.

    Attributes:
        version: one more with each change; 0: nothing was written yet.
        places: where servers are wanted.
        servers: those that hold something, or may be asked to.
        primary, backup, joining: by slot.
        lost: why the rows of some slot are in no server any more, in words; empty: they are. See `goes_back`.
        checkpoint: the version in which one was ordered last: who reads that version writes its part.
        restore: the checkpoint with which the rows begin; 0: with none.
        rows_from: the round that was opened when the job went back to it (`Header.rows_from`); 0: the run began so.
    """

    version: Number = 0
    places: Annotated[tuple[ServerPlace, ...], Count(MOST_SERVERS)] = ()
    servers: Annotated[tuple[RunningServer, ...], Count(MOST_SERVERS)] = ()
    primary: Holders = ()
    backup: Holders = ()
    joining: Holders = ()
    lost: Words = ""
    checkpoint: Number = 0
    restore: Number = 0
    rows_from: Number = 0

    @property
    def goes_back(self) -> bool:
        """Rows are lost, and the whole job is to go back to checkpoint `restore`: it has no slots until then."""
        return bool(self.lost and self.restore) and not self.primary

    @property
    def serves(self) -> bool:
        """Every slot has a primary."""
        return len(self.primary) == SLOTS and NOBODY not in self.primary

    def index_of(self, incarnation: str) -> int:
        """Of that server in `servers`; NOBODY where it is not among them."""
        return next((at for at, each in enumerate(self.servers) if each.incarnation == incarnation), NOBODY)
