"""A worker of this node, as its agent knows it."""

from collections.abc import Iterable

from ...rendezvous.base.frozen import dataclass
from ...rendezvous.member import Exit


@dataclass(frozen=True, slots=True)
class Running:
    """One worker of the current round.

    Attributes:
        ended: its exit code, or minus its signal; None while it lives.
        output: bytes that it has printed.
        tail: the last of them.
    """

    rank: int
    local_rank: int
    pid: int
    ended: int | None = None
    output: int = 0
    tail: bytes = b""


def list_workers(present: Iterable[Running], ended: Iterable[Exit]) -> tuple[Running, ...]:
    """Those of the current processes, and those that ended before the others went on into another round (pure)."""
    return (*present, *(Running(each.rank, each.local_rank, each.pid, each.status) for each in ended))
