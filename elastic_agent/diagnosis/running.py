"""A worker of this node, as its agent knows it."""

from dataclasses import dataclass


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
