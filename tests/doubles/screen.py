"""What a person sees on a terminal: a small reader of the escape sequences that elastic-run writes."""

import re

_TOKENS = re.compile(r"\x1b\[([0-9;?]*)([A-Za-z])|(\r)|(\n)|([^\x00-\x1f])|.", re.DOTALL)


class Screen:
    """As many rows as were written; nothing scrolls away.

    Attributes:
        rows: what a person sees there: what comes in a synchronised update (mode 2026) at once, at its end.
    """

    def __init__(self) -> None:
        self.rows = self._rows = [""]
        self._row = self._column = 0
        self._rest = ""

    def feed(self, data: bytes) -> None:
        """What the terminal gets next; a sequence may be torn."""
        text = self._rest + data.decode(errors="replace")
        cut = re.search(r"\x1b(?:\[[0-9;?]*)?\Z", text)
        text, self._rest = (text[: cut.start()], cut[0]) if cut else (text, "")
        for number, how, back, newline, letter in _TOKENS.findall(text):
            row = self._rows[self._row]
            if number == "?2026":
                self.rows = [*self._rows] if how == "h" else self._rows
            elif letter:
                self._rows[self._row] = row[: self._column].ljust(self._column) + letter + row[self._column + 1 :]
                self._column += 1
            elif back:
                self._column = 0
            elif newline:
                self._row += 1
                self._rows += [""] * (self._row + 1 - len(self._rows))
            elif how == "A":
                self._row = max(0, self._row - int(number or 1))
            elif how in ("K", "J"):
                self._rows[self._row] = row[: self._column]
                if how == "J":
                    del self._rows[self._row + 1 :]
