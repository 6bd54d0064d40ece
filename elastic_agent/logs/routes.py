"""Which of a worker's streams goes where, and what its lines begin with (pure)."""

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Literal

from ...rendezvous.base.frozen import dataclass

StreamName = Literal["stdout", "stderr"]
_BITS: Mapping[StreamName, int] = {"stdout": 1, "stderr": 2}

_COLOURS = (36, 33, 35, 32, 34, 31)


@dataclass(frozen=True, slots=True)
class StreamRoutes:
    """Of one node's workers.

    Attributes:
        color: the streams whose prefixes are coloured, one colour per rank.
        redirects: by local rank, streams that go to their file instead of the terminal: 0 none, 1 stdout, 2 stderr, 3
            both.
        tee: likewise, streams that go to both, even where `redirects` names them.
        line_prefix: what a worker's lines begin with on the terminal, by rank and local rank; None: host and rank.
        shown_ranks: only these local ranks are shown on the terminal; empty: all.
        stdout_needles, stderr_needles: lines that contain one of these are kept once more, in a file of the round.
    """

    color: Collection[StreamName] = ()
    redirects: Sequence[int] = ()
    tee: Sequence[int] = ()
    line_prefix: Callable[[int, int], str] | None = None
    shown_ranks: Collection[int] = ()
    stdout_needles: tuple[bytes, ...] = ()
    stderr_needles: tuple[bytes, ...] = ()

    @property
    def wants_files(self) -> bool:
        """Something goes to a file, whether or not the user has named a folder for logs."""
        return any(self.redirects) or any(self.tee) or bool(self.stdout_needles or self.stderr_needles)

    def needles(self, stream: StreamName) -> tuple[bytes, ...]:
        """Of that stream."""
        return self.stdout_needles if stream == "stdout" else self.stderr_needles

    def is_shown(self, local_rank: int, stream: StreamName) -> bool:
        """It goes to the terminal."""
        if self.shown_ranks and local_rank not in self.shown_ranks:
            return False
        return _has(self.tee, local_rank, stream) or not _has(self.redirects, local_rank, stream)

    def is_filed(self, local_rank: int, stream: StreamName) -> bool:
        """The user has asked for a file of it."""
        return _has(self.tee, local_rank, stream) or _has(self.redirects, local_rank, stream)

    def prefix(self, host: str, rank: int, local_rank: int, stream: StreamName) -> bytes:
        """What each of its lines begins with."""
        text, space = (f"[{host} rank {rank}]", " ")
        if self.line_prefix is not None:
            text, space = self.line_prefix(rank, local_rank), ""
        if stream in self.color:
            text = f"\x1b[2;{_COLOURS[rank % len(_COLOURS)]}m{text}\x1b[0m"
        return f"{text}{space}".encode(errors="replace")


def _has(streams: Sequence[int], local_rank: int, stream: StreamName) -> bool:
    return local_rank < len(streams) and bool(streams[local_rank] & _BITS[stream])
