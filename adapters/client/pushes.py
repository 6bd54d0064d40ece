"""What follows from a script's word that records are in the model, where part of that model is on servers.

The servers' client (`adapters/servers/session.py`) registers itself here when a script declares its first table.
"""

from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from typing import NamedTuple, Protocol

from ...master.data.ledger import OffsetRange


class StepRecords(NamedTuple):
    """What all ranks together train on in one step.

    Attributes:
        dataset: names the records and their orders.
        epoch: whose order.
        round: of the ranks.
        begin, end: in that order.
    """

    dataset: str
    epoch: int
    round: int
    begin: int
    end: int


class Pushes(Protocol):
    """Pushes what a script has computed from records, when it names them.

    `dataset` is `Layout.order`; `lease` is the number of the shard's lease: whoever has it after another worker, which
    was lost or has ended, has a higher one.
    """

    def cuts(self, dataset: str, shard_index: int, lease: int, offset: int) -> list[int]:
        """Marks of the shard, at least one, ascending: the first is where it begins, and no push may cross another.

        What lies before a mark is applied in some of the model already, and what lies before the first in all of it.
        The ledger says `offset`, and nothing before that is done again. From now on no push counts that was made under
        an earlier lease, so that the marks stay where they are. A mark beyond the shard's end: all is applied.
        """
        ...

    def push(self, dataset: str, shard_index: int, lease: int, begin: int, end: int, *, last: bool) -> None:
        """Returns when what is known of these records of the shard is applied; `last`: no other of it follows."""
        ...

    def find_applied(self, dataset: str) -> Mapping[str, Sequence[tuple[int, int]]]:
        """Of each partition of a stream, the offsets that are in all of the model, or that nobody wants any more.

        They are ranges in order, each from its first offset to the one before another.
        """
        ...

    def find_open(
        self, dataset: str, offsets: OffsetRange, lease: int, floors: Sequence[OffsetRange]
    ) -> tuple[int, int] | None:
        """As `cuts`, of a stream: the first of these offsets that are not in all of the model, from one to the one
        before another, which no push may cross; None: all are.

        Args:
            floors: offsets of which nothing is ever leased again.
        """
        ...

    def push_offsets(self, dataset: str, offsets: OffsetRange, lease: int) -> None:
        """As `push`, of a stream."""
        ...

    def settle_steps(self, dataset: str, round: int, position: tuple[int, int]) -> list[tuple[int, int]]:
        """The first of a round, on each rank: decides on the step that an earlier round may have left prepared.

        It is applied where the ranks' `position`, an epoch and how many of its records are done, contains it, and
        dropped otherwise; what was pulled and not prepared is forgotten. Returns at what positions rows are, sorted:
        the first is true of all. What lies before that of a row is not applied to it again.
        """
        ...

    def prepare_step(self, step: StepRecords, rank: int, world: int) -> None:
        """This rank's part of the step, divided by `world`, is with the servers when this returns, and not applied."""
        ...

    def apply_step(self, step: StepRecords) -> None:
        """All ranks have prepared the step, and none can undo it. Returns when it is applied."""
        ...

    @property
    def in_doubt(self) -> bool:
        """A push may still come to a server: a shard that it is of is not given back under the same lease."""
        ...

    def rest(self) -> None:
        """This process trains on nothing until it pulls rows again: it waits for a shard, or there are no more."""
        ...


registered: list[Pushes] = []
"""At most one."""

IDLE = 0.25
"""Seconds that an answer about shards may take before this worker is said to train on nothing."""


class LeasesToCome(Protocol):
    """A connection over which an answer about shards is to come."""

    def ready(self, seconds: float = 0.0) -> bool:
        """Whether something is there within so many seconds."""
        ...


def rest() -> None:
    """Nobody is to wait for this worker."""
    for each in registered:
        each.rest()


@contextmanager
def set_aside() -> Generator[None]:
    """Records that are done in it go into no model: shards are leased, and nothing is pushed."""
    rest()
    given, registered[:] = registered[:], []
    try:
        yield
    finally:
        registered[:0] = given


def await_work(leases: LeasesToCome | None) -> None:
    """Waits until the answer is there, or nobody is to wait for this worker."""
    if registered and leases and not leases.ready(IDLE):
        rest()
