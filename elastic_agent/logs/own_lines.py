"""How the launcher's own lines are written: for a person, or for a program (pure but for the clock)."""

import json
import time
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Literal

from ...rendezvous.base.frozen import dataclass
from ...rendezvous.base.visible import visible_lines

MARK, BOLD_MARK = "[elastic-run] ", "\x1b[1m[elastic-run]\x1b[0m "

LineFormat = Literal["text", "json"]


@dataclass(frozen=True, slots=True)
class OwnLines:
    """The form of the launcher's own lines.

    Attributes:
        format: text: `[elastic-run] ...`; json: one object a line, with its time, job and node.
        timestamps: a line of text has its time, too, in UTC.
        job, node: in each object; node as it was asked for.
        now: seconds since 1970.
    """

    format: LineFormat = "text"
    timestamps: bool = False
    job: str = ""
    node: str = ""
    now: Callable[[], float] = time.time

    def encoded(self, line: str, *, colour: bool = False) -> bytes:
        """With an end of line."""
        if self.format == "json":
            made = {"time": self._time(), "job": self.job, "node": self.node, "message": line}
            return json.dumps(made).encode() + b"\n"  # in ASCII: no control character is left
        mark = (BOLD_MARK if colour else MARK) + (f"{self._time()} " if self.timestamps else "")
        return "".join(f"{mark}{part}\n" for part in visible_lines(line)).encode()

    def _time(self) -> str:
        return datetime.fromtimestamp(self.now(), UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
