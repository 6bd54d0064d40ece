"""What a round of the job is to those who answer its workers: the ledgers and the clocks (a value)."""

from collections.abc import Mapping

from ...rendezvous.base.frozen import dataclass, field


@dataclass(frozen=True, slots=True)
class Current:
    """The round that the job is in.

    Attributes:
        run: `Header.run`.
        round: its number.
        running: nodes train in it.
        world: its workers.
        incarnations: of its nodes.
        ranks: of each of them, by incarnation; a node that is not there may ask for any.
        since: for which round, by incarnation, the workers were started that continue in this one, at the earliest.
        rows_from: `Header.rows_from`.
    """

    run: str
    round: int
    running: bool
    world: int
    incarnations: frozenset[str]
    ranks: Mapping[str, range] = field(default_factory=dict[str, range])
    since: Mapping[str, int] = field(default_factory=dict[str, int])
    rows_from: int = 0

    def earliest(self, incarnation: str) -> int:
        """For which round the workers of a node were started, at the earliest."""
        return self.since.get(incarnation, self.round) if self.running else self.round
