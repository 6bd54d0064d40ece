"""Bytes as a worker writes them become lines as they are shown: pure, with time as an argument."""

import re
from typing import NamedTuple

LINE_BYTES = 64 << 20
"""A longer line is shown in pieces; files get it unchanged."""

PROGRESS_SECONDS = 5.0
"""At most this often a line that overwrites itself (a progress bar) is shown; its last state always is."""

_MOVES = re.compile(rb"\x1b\[(?:[0-9;?]*[ABE-HJSTfhlnsu]|[12]K)")
"""Escape sequences that leave the line or erase it: on a terminal shared by ranks they would spoil others' lines."""


def without_moves(text: bytes) -> bytes:
    """`text` without the escape sequences that leave the line or erase it; colours stay, and what edits a prompt."""
    return _MOVES.sub(b"", text)


class Piece(NamedTuple):
    """A part of a line, without the newline; `ends`: the line ends with it."""

    text: bytes
    ends: bool


class Splitter:
    """One stream of one worker.

    Attributes:
        begun: a part of the line that has not ended yet was given out.
    """

    def __init__(self) -> None:
        self.begun = False
        self._rest: list[bytes] = []
        self._size = 0
        self._overwritten = False  # the line that has not ended yet, by itself
        self._progress: bytes | None = None
        self._shown_progress = float("-inf")

    @property
    def waits(self) -> bool:
        """There is a part of a line that `take` would give out. A progress bar is none: it has its own pace."""
        return self._size > 0 and not self._overwritten

    def feed(self, data: bytes, now: float) -> list[Piece]:
        """What can be shown once `data` has come; `now` in seconds of any clock."""
        pieces: list[Piece] = []
        if b"\r" not in data and not self._overwritten:
            if b"\n" in data:
                *whole, rest = (b"".join(self._rest) + data).split(b"\n")
                pieces = [Piece(line, ends=True) for line in whole]
                self.begun = False
                self._keep(rest)
            else:
                self._rest.append(data)
                self._size += len(data)
        else:
            # Kept back with the rest: a trailing \r may be the first half of \r\n.
            *whole, rest = (b"".join(self._rest) + data).split(b"\n")
            for line in whole:
                last = self._last_state(line.removesuffix(b"\r"), pieces, now)
                # The bar's state before an empty end of line is its last state.
                pieces.append(Piece(last or self._progress or b"", ends=True))
                self._progress, self.begun = None, False
            self._overwritten = b"\r" in rest or self._progress is not None
            if b"\r" in rest[:-1]:
                ending = b"\r" if rest.endswith(b"\r") else b""
                rest = self._last_state(rest.removesuffix(b"\r"), pieces, now) + ending
            self._keep(rest)
        if self._size > LINE_BYTES:
            pieces.append(self.take())
        return pieces

    def take(self) -> Piece:
        """What there is of a line that has not ended."""
        text = b"".join(self._rest)
        self._keep(b"")
        self.begun = True
        return Piece(text, ends=False)

    def end(self) -> list[Piece]:
        """What came without a newline: nothing more will come, or not soon."""
        last = (b"".join(self._rest) or self._progress or b"").strip(b"\r")
        begun, self.begun = self.begun, False
        self._keep(b"")
        self._progress, self._overwritten = None, False
        return [Piece(last, ends=True)] if last or begun else []

    def _keep(self, rest: bytes) -> None:
        self._rest, self._size = [rest] if rest else [], len(rest)

    def _last_state(self, line: bytes, pieces: list[Piece], now: float) -> bytes:
        """The last state of a line that overwrote itself; a state between goes to `pieces` now and then."""
        *states, last = line.split(b"\r")
        if states and self.begun:
            pieces.append(Piece(states.pop(0), ends=True))  # what was shown of it cannot be overwritten
            self.begun = False
        states = [state for state in states if state.strip()]
        if states:
            self._progress = states[-1]
            if now - self._shown_progress >= PROGRESS_SECONDS:
                self._shown_progress = now
                pieces.append(Piece(states[-1], ends=True))
                self._progress = None
        return last
