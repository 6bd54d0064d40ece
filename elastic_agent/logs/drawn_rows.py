"""What a worker draws on its terminal becomes lines that stay and rows that may still change: pure, with time given.

Text passes as it comes, until it overwrites itself: by a carriage return, or where the cursor goes to another row. From
that line on, rows are kept here, to be drawn below all lines. A row becomes a line when the cursor has stood below it
for a moment: bars below one another are drawn by newlines and ways back. A hidden cursor (`rich`) leaves no row.
"""

import re
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass

SETTLE_SECONDS = 0.2
"""So long the cursor stands below a row that is a line from then on."""

_MOST_ROWS = 200  # that may still change: what is above them is given out
_ROW_BYTES = 64 << 10  # a longer row is given out in pieces
_SEQUENCE_BYTES = 256  # of an escape sequence that is waited for

_ESCAPES = re.compile(rb"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)|[ -/]*[0-Z\\^-~])")
_UNFINISHED = re.compile(rb"\x1b(?:\[[0-?]*[ -/]*|\][^\x07\x1b]*\x1b?|[ -/]*)\Z")
_OVERWRITES = re.compile(rb"\r(?!\n)|\x1b\[(?:[0-9;]*[ABEFHJf]|2K|\?25l)")
_TOKENS = re.compile(
    rb"(\r*\n)|(\r)|((?:[^\x00-\x08\n-\x1f]|\x1b\[[0-9;:]*m)+)|\x1b\[([0-?]*)[ -/]*([@-~])|" + _ESCAPES.pattern
)
_SHOWN = re.compile(r"(\x1b\[[0-9;:]*m)|.", re.DOTALL)


def plain(text: bytes) -> bytes:
    """For files and sentences: without escape sequences, and of a line that overwrote itself the last state."""
    if b"\x1b" in text:
        text = _ESCAPES.sub(b"", text)
    if b"\r" in text:
        text = b"\n".join(line.rstrip(b"\r").rpartition(b"\r")[2] for line in text.split(b"\n"))
    return text.translate(None, b"\b") if b"\b" in text else text


def fitted(text: str, columns: int) -> tuple[str, int]:
    """As much of a row as `columns` hold, with its colours, and how many columns all of it takes."""
    parts, taken = list[str](), 0
    for each in _SHOWN.finditer(text):
        if not each[1]:
            taken += 0 if unicodedata.combining(each[0]) else 1 + (unicodedata.east_asian_width(each[0]) in "WF")
        if taken <= columns or each[1]:
            parts.append(each[0])
    return "".join([*parts, "\x1b[0m" if "\x1b" in text else ""]), taken


def redrawn(before: Sequence[str], after: Sequence[str]) -> bytes:
    """What draws rows in place of others; the cursor is in the last of them."""
    up = b"\r\x1b[%dA\x1b[J" % (len(before) - 1) if len(before) > 1 else b"\r\x1b[K" if before else b""
    return up + "\n".join(after).encode(errors="replace")


@dataclass(slots=True)
class _Row:
    text: bytes = b""
    changes: bool = False  # it was begun once more, or wiped
    left: float = 0.0  # when the cursor went below it


class DrawnRows:
    """Of one stream of one worker that writes onto a terminal."""

    def __init__(self) -> None:
        self._rows: list[_Row] = []  # from the first that may still change; none: text passes
        self._at = 0
        self._anew = False  # what comes next takes the place of what is in that row
        self._hidden = False
        self._rest = b""  # of an escape sequence
        self._begun = False  # a part of a line has passed

    @property
    def rows(self) -> list[str]:
        """Those that may still change, without empty ones."""
        return [row.text.decode(errors="replace").expandtabs() for row in self._rows if row.text.strip()]

    @property
    def settles(self) -> bool:
        """A row is a line in a moment."""
        return self._at > 0 and not self._hidden

    def feed(self, data: bytes, now: float) -> bytes:
        """What passes, or has become lines, once `data` has come; `now` in seconds of any clock."""
        data, self._rest = self._rest + data, b""
        if cut := _UNFINISHED.search(data, max(0, len(data) - _SEQUENCE_BYTES)):
            data, self._rest = data[: cut.start()], cut[0]
        given = b""
        if not self._rows:
            found = _OVERWRITES.search(data)
            begin = data.rfind(b"\n", 0, found.start()) + 1 if found else len(data)
            given, data = data[:begin], data[begin:]
            self._begun = not given.endswith(b"\n") if given else self._begun
            if not found:
                return given
            self._rows, self._at, self._anew = [_Row()], 0, False
        for token in _TOKENS.finditer(data):
            self._draw(token, now)
        return given + self.settle(now)

    def settle(self, now: float) -> bytes:
        """What has become lines by `now`."""
        given: list[bytes] = []
        while self._at and (
            len(self._rows) > _MOST_ROWS or (self.settles and now >= self._rows[0].left + SETTLE_SECONDS)
        ):
            given.append(self._line(self._rows.pop(0)))
            self._at -= 1
        row = self._rows[0] if len(self._rows) == 1 and not self._hidden else None
        if row and not (row.changes and row.text.strip()):  # nothing, or the beginning of a line, such as a prompt
            self._rows = []
            if row.text and not row.changes:
                given.append(self._line(row)[:-1])
                self._begun = True
        return b"".join(given)

    def end(self) -> bytes:
        """All rows, which nothing changes any more."""
        rows, self._rows, self._at, self._hidden = self._rows, [], 0, False
        return b"".join(self._line(row) for row in rows if row.text.strip())

    def _line(self, row: _Row) -> bytes:
        text = row.text.rstrip() if row.changes else row.text
        begun, self._begun = self._begun and bool(text), False
        return (b"\n" if begun else b"") + text + b"\n"

    def _draw(self, token: re.Match[bytes], now: float) -> None:
        newline, back, text, given, how = token.groups()
        row = self._rows[self._at]
        if newline:
            self._go(self._at + 1, now)
        elif back:
            self._anew = row.changes = True
        elif text:
            row.text = text if self._anew else row.text + text
            self._anew = False
            if len(row.text) > _ROW_BYTES:
                self._go(self._at + 1, now)
        elif how:
            number = min(int(b"0" + re.split(rb"\D", given)[0]), _MOST_ROWS)
            if how in b"AFBEHf":
                at = 0 if how in b"Hf" else self._at + (number or 1) * (1 if how in b"BE" else -1)
                self._go(min(at, len(self._rows) - 1), now)
                self._anew = self._rows[self._at].changes = True
            elif how in b"JK":
                row.changes = True
                if self._anew or number == 2:
                    row.text = b""
                for other in self._rows[0 if number else self._at + 1 :] if how == b"J" else ():
                    other.text = b""
            elif given == b"?25" and how in b"hl":
                self._hidden = how == b"l"

    def _go(self, at: int, now: float) -> None:
        """The cursor goes to that row."""
        for row in self._rows[self._at : at]:
            row.left = now
        self._at, self._anew = max(0, at), False
        self._rows += [_Row() for _ in range(self._at + 1 - len(self._rows))]
