"""One recovery, drawn: a job is traced, a worker is killed, and what happens until the next full step is a picture.

What the launcher does is in its trace (`--trace`), and how far the workers have come in their journal. Both have the
machine's monotonic clock.
"""

import contextlib
import dataclasses
import json
import os
import signal
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from . import pictures
from .arena import Arena, DidNotCome, free_port
from .journal import PHASES, Born, Step, full_steps, pids
from .launchers import OURS, Job
from .nodes import START_BOUND, script, settled
from .pictures import Row, Span
from .worker_kill import BOUND, WORKERS

OF = "worker_kill"
"""The benchmark that it belongs to."""

FILE = "recovery.svg"

DETECTED = "detect"
_RANK = "rank "


@dataclass(frozen=True, slots=True)
class Event:
    """One event of a trace: in which row, and from when to when, in nanoseconds; an instant has no length."""

    row: str
    name: str
    begun: int
    ended: int


def read(text: str) -> list[Event]:
    """The instants and spans of a trace: JSON objects, one a line; what is not whole or not understood is left out."""
    found: list[dict[str, Any]] = []  # Any: whatever a trace may hold
    for line in text.splitlines():
        if line.startswith("{"):
            with contextlib.suppress(ValueError):
                found.append(json.loads(line.rstrip(", ")))
    rows = {
        one.get("tid"): str(one.get("args", {}).get("name", "")) for one in found if one.get("name") == "thread_name"
    }
    return [
        Event(
            row=rows.get(one.get("tid"), ""),
            name=str(one.get("name", "")),
            begun=round(one["ts"] * 1e3),
            ended=round((one["ts"] + one.get("dur", 0)) * 1e3),
        )
        for one in found
        if one.get("ph") in ("X", "i", "I") and isinstance(one.get("ts"), int | float)
    ]


def rows(events: Iterable[Event], born: Sequence[Born], fault: int, first: Step) -> list[Row]:
    """The rows of the picture, from the fault to the first full step after it: the launcher's, then a rank each."""

    def seconds(instant: int) -> float:
        return (min(max(instant, fault), first.at) - fault) / 1e9

    within = [one for one in events if one.ended > fault and one.begun < first.at and not one.row.startswith(_RANK)]
    lines: dict[str, list[Span]] = {}
    detected = next((one for one in within if one.name == DETECTED), None)
    if detected is not None:
        lines[detected.row] = [Span(DETECTED, 0.0, seconds(detected.begun))]
    for one in sorted(within, key=lambda event: event.begun):
        if one.ended > one.begun:
            lines.setdefault(one.row, []).append(Span(one.name, seconds(one.begun), seconds(one.ended)))
    starts = [one.begun for one in within if one.name == "start"]
    begun = max(starts, default=fault)
    made = [Row(name, tuple(spans)) for name, spans in lines.items()]
    for rank in sorted((one for one in born if one.generation == first.generation), key=lambda one: one.rank):
        ends = (rank.first_line, rank.imported, rank.joined, rank.built, rank.restored, first.at)
        pairs = zip(PHASES, (begun, *ends), ends, strict=False)
        spans = tuple(Span(name, seconds(start), seconds(end)) for name, start, end in pairs)
        made.append(Row(f"{_RANK}{rank.rank}", spans))
    return made


def draw(folder: Path, keep: Path | None) -> str:
    """Runs the job, and writes the picture into `folder`; what became of it, in a sentence."""
    with Arena("recovery", keep) as arena:
        trace = arena.folder / "trace.json"
        traced = dataclasses.replace(OURS, words=(f"--trace={trace}",))
        arena.launch(traced, Job(arena.job_id, "1", WORKERS, free_port(), script(arena)))
        journal = arena.journal
        try:
            last = arena.until(lambda: settled(arena, WORKERS), START_BOUND)
            fault = time.monotonic_ns()
            os.kill(pids(journal.born, last.generation)[0], signal.SIGKILL)
            first = arena.until(lambda: next(iter(full_steps(journal.steps, after=fault)), None), BOUND)
        except DidNotCome as error:
            return f"no picture of a recovery: {error}"
        events = read(trace.read_text(encoding="utf-8", errors="replace"))
        lines = rows(events, journal.born, fault, first)
    title = f"A worker is killed: {(first.at - fault) / 1e6:.0f} ms to the next full step of {WORKERS} workers"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / FILE).write_text(pictures.timeline(title, lines), encoding="utf-8")
    return f"written: {folder / FILE}"
