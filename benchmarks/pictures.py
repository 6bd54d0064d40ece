"""Pictures of what was measured, as SVG (pure): bars for a case, and a recovery's spans along a line of time."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from html import escape

from . import table
from .contest import Result

WIDTH = 760
RIGHT = 150
ROW = 26
LETTER = 6.6
"""How wide one is, roughly; they are drawn by whoever shows the picture."""

OURS, PEER, MISSED = "#2ca02c", "#8c9cb1", "#d9dee6"
COLOURS = {
    "detect": "#d62728",
    "decide": "#ff7f0e",
    "decision": "#8b4513",
    "publish": "#f2b134",
    "stop": "#9467bd",
    "warm": "#aec7e8",
    "start": "#1f77b4",
    "launch": "#17becf",
    "import torch": "#bcbd22",
    "join the group": "#8c564b",
    "build DDP": "#e377c2",
    "restore": "#7f7f7f",
    "first step": "#2ca02c",
}
OTHER = "#c7c7c7"


@dataclass(frozen=True, slots=True)
class Span:
    """Something that lasted, in seconds from the picture's begin."""

    name: str
    begun: float
    ended: float


@dataclass(frozen=True, slots=True)
class Row:
    """One line of a timeline: who, and what it did, one after the other."""

    name: str
    spans: tuple[Span, ...]


def bars(result: Result) -> str:
    """A bar for each launcher's median, with a whisker over its spread; a run that did not get there has no end."""
    case = result.case
    everyone = [one for one in (result.ours, *result.peers) if one.seconds]
    figures = [table.times(one) for one in everyone]
    most = max((one.high if not math.isinf(one.high) else case.bound) for one in figures) or 1.0
    left = _left(one.name for one in everyone)
    scale = (WIDTH - left - RIGHT) / most
    parts: list[str] = []
    for place, (one, figure) in enumerate(zip(everyone, figures, strict=True)):
        y = 50 + place * ROW
        missed = math.isinf(figure.median)
        length = (case.bound if missed else figure.median) * scale
        colour = MISSED if missed else OURS if one is result.ours else PEER
        words = f"{table.seconds(figure.median, case.bound)} {case.unit}"
        if one is not result.ours and (compared := table.ratio(result.ours, one)):
            words += f" ({table.factor(compared.of_medians, compared.limits[0])})"
        high = case.bound if math.isinf(figure.high) else figure.high
        low = min(figure.low, high)
        parts += [
            _text(left - 8, y + 15, one.name, anchor="end"),
            f'<rect x="{left}" y="{y + 2}" width="{max(1.0, length):.1f}" height="{ROW - 8}" fill="{colour}"/>',
            f'<path d="M{left + low * scale:.1f},{y + 11}H{left + high * scale:.1f}" stroke="#333"/>',
            _text(left + max(length, high * scale) + 6, y + 15, words),
        ]
    title = case.title[0].upper() + case.title[1:]
    height = 50 + len(everyone) * ROW + 24
    many = max(one.n for one in figures)
    foot = (
        f"median of {many} runs, and how far they were apart; less is better" if many > 1 else "one run; less is better"
    )
    return _svg(height, title, [*parts, _text(left, height - 8, foot, colour="#777")])


def timeline(title: str, rows: Sequence[Row]) -> str:
    """The rows of a recovery, one below the other, along one line of time."""
    end = max(span.ended for row in rows for span in row.spans)
    left = _left(row.name for row in rows)
    scale = (WIDTH - left - 40) / end
    names = dict.fromkeys(span.name for row in rows for span in row.spans)
    parts: list[str] = []
    x, y = 20.0, 44
    for name in names:
        if x > WIDTH - 130:
            x, y = 20.0, y + 18
        parts.append(f'<rect x="{x:.0f}" y="{y - 10}" width="12" height="12" fill="{_colour(name)}"/>')
        parts.append(_text(x + 17, y, name))
        x += 40 + LETTER * len(name)
    top = y + 16
    bottom = top + len(rows) * ROW
    for tick in _ticks(end):
        parts.append(f'<path d="M{left + tick * scale:.1f},{top}V{bottom}" stroke="#ddd"/>')
        parts.append(
            _text(left + tick * scale, bottom + 15, f"{tick * 1e3:g} ms" if end < 2 else f"{tick:g} s", anchor="middle")
        )
    for place, row in enumerate(rows):
        y = top + place * ROW
        parts.append(_text(left - 8, y + 16, row.name, anchor="end"))
        for span in row.spans:
            width = max(1.0, (span.ended - span.begun) * scale)
            told = f"{span.name}: {(span.ended - span.begun) * 1e3:.1f} ms from {span.begun * 1e3:.1f} ms on"
            parts.append(
                f'<rect x="{left + span.begun * scale:.1f}" y="{y + 3}" width="{width:.1f}" height="{ROW - 8}" '
                f'fill="{_colour(span.name)}"><title>{escape(told)}</title></rect>'
            )
    return _svg(bottom + 26, title, parts)


def _ticks(end: float) -> list[float]:
    """Some eight round numbers from 0 to `end`."""
    power = 10.0 ** math.floor(math.log10(end / 8))
    step = next(power * factor for factor in (1, 2, 5, 10) if power * factor * 8 >= end)
    return [step * number for number in range(int(end / step) + 1)]


def _left(names: Iterable[str]) -> int:
    """Where the drawing begins, so that the names have room beside it."""
    return round(max(map(len, names)) * LETTER) + 24


def _colour(name: str) -> str:
    return COLOURS.get(name, OTHER)


def _text(x: float, y: float, words: str, anchor: str = "start", colour: str = "#222") -> str:
    return f'<text x="{x:.1f}" y="{y}" text-anchor="{anchor}" fill="{colour}">{escape(words)}</text>'


def _svg(height: int, title: str, parts: Iterable[str]) -> str:
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" font-family="sans-serif" '
        f'font-size="12"><title>{escape(title)}</title>\n<rect width="{WIDTH}" height="{height}" fill="white"/>'
    )
    return "\n".join([head, f'<text x="20" y="24" font-weight="bold">{escape(title)}</text>', *parts, "</svg>\n"])
