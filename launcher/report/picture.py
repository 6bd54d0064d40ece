"""The charts of the page, as SVG (pure). Each is drawn twice, for a wide and for a narrow screen; CSS shows one."""

from collections.abc import Callable, Sequence
from html import escape

from ...rendezvous.base.frozen import dataclass

WIDE, NARROW = 920, 360
"""Widths in the picture's own units, in which a letter has the same size."""

_LEFT, _RIGHT, _TOP, _BOTTOM = 44, 12, 10, 44
_HEIGHT = 200

_MINUTE, _HOUR, _DAY = 60, 3600, 86400

NICE = (
    *(0.1, 0.2, 0.5, 1, 2, 5, 10, 15, 30),
    *(_MINUTE * each for each in (1, 2, 5, 10, 15, 30)),
    *(_HOUR * each for each in (1, 2, 4, 6, 12)),
    *(_DAY * each for each in (1, 2, 7)),
)
"""Seconds between two marks of the time axis."""


@dataclass(frozen=True, slots=True)
class Mark:
    """Something on the time axis that is explained below: `target` is the id of the explanation."""

    at: float
    label: str
    title: str
    target: str


def steps(
    values: Sequence[tuple[float, float]], began: float, until: float, title: str, marks: Sequence[Mark] = ()
) -> str:
    """A value that stays until it changes.

    Args:
        values: (time, value) in order of time.
        began, until: the time axis, as `values`.
        title: says what is seen, for who does not see it.
    """
    points: list[tuple[float, float]] = []
    for at, value in values:
        if points:
            points.append((at, points[-1][1]))
        points.append((at, value))
    if points:
        points.append((until, points[-1][1]))
    return _both(lambda width: _chart(points, began, until, title, marks, width))


def line(values: Sequence[tuple[float, float]], began: float, until: float, title: str) -> str:
    """A value that changes steadily."""
    return _both(lambda width: _chart(values, began, until, title, (), width))


def bar(parts: Sequence[tuple[str, float]], title: str) -> str:
    """Shares of a whole, each in the colour of its CSS class."""
    whole = sum(value for _, value in parts) or 1.0
    at = 0.0
    made = ['<svg class="bar" viewBox="0 0 1000 26" preserveAspectRatio="none" role="img">']
    made.append(f"<title>{escape(title)}</title>")
    for name, value in parts:
        width = 1000 * value / whole
        made.append(f'<rect class="c-{name}" x="{at:.2f}" y="0" width="{width:.2f}" height="26"/>')
        at += width
    return "".join([*made, "</svg>"])


def _both(draw: Callable[[int], str]) -> str:
    return f'<div class="wide">{draw(WIDE)}</div><div class="narrow">{draw(NARROW)}</div>'


def _chart(
    points: Sequence[tuple[float, float]], began: float, until: float, title: str, marks: Sequence[Mark], width: int
) -> str:
    span = max(until - began, 1e-3)
    most = max([value for _, value in points] or [0.0]) or 1.0
    right, bottom = width - _RIGHT, _HEIGHT - _BOTTOM

    def x(at: float) -> float:
        return _LEFT + (right - _LEFT) * min(max((at - began) / span, 0.0), 1.0)

    def y(value: float) -> float:
        return bottom - (bottom - _TOP) * value / most

    role = "group" if marks else "img"  # whose parts are not read out
    made = [f'<svg viewBox="0 0 {width} {_HEIGHT}" role="{role}" aria-label="{escape(title)}">']
    half = most / 2 if most != int(most) or most % 2 == 0 else 0.0
    for value in dict.fromkeys((0.0, half, most)):
        made.append(f'<line class="grid" x1="{_LEFT}" x2="{right}" y1="{y(value):.1f}" y2="{y(value):.1f}"/>')
        made.append(f'<text x="{_LEFT - 6}" y="{y(value) + 4:.1f}" text-anchor="end">{value:g}</text>')
    wanted = 6 if width == WIDE else 3
    step = next((each for each in NICE if span / each <= wanted), span / wanted)
    for at in (step * index for index in range(int(span / step) + 1)):
        made.append(f'<text x="{x(began + at):.1f}" y="{bottom + 16}" text-anchor="middle">{clock(at)}</text>')
    if points:
        path = " ".join(f"{x(at):.1f},{y(value):.1f}" for at, value in points)
        made.append(
            f'<polygon class="area" points="{x(points[0][0]):.1f},{bottom} {path} {x(points[-1][0]):.1f},{bottom}"/>'
        )
        made.append(f'<polyline class="edge" points="{path}"/>')
    for at, label, titles, target in _apart(marks, x):
        made.append(f'<line class="cut" x1="{at:.1f}" x2="{at:.1f}" y1="{_TOP}" y2="{bottom + 20}"/>')
        half = 5 + 4 * len(label)
        made.append(
            f'<a href="#{escape(target)}" aria-label="{escape(titles)}"><rect class="mark" x="{at - half:.1f}" '
            f'y="{bottom + 22}" width="{2 * half}" height="20" rx="10"/>'
            f'<text x="{at:.1f}" y="{bottom + 36}">{escape(label)}</text><title>{escape(titles)}</title></a>'
        )
    return "".join([*made, "</svg>"])


def _apart(marks: Sequence[Mark], x: Callable[[float], float]) -> list[tuple[float, str, str, str]]:
    """Marks that would lie over each other become one."""
    groups: list[list[Mark]] = []
    for mark in marks:
        if groups and x(mark.at) - x(groups[-1][0].at) < 34:
            groups[-1].append(mark)
        else:
            groups.append([mark])
    return [
        (
            x(group[0].at),
            group[0].label if len(group) == 1 else f"{group[0].label}-{group[-1].label}",
            "; ".join(mark.title for mark in group[:5]),
            group[0].target,
        )
        for group in groups
    ]


def clock(seconds: float) -> str:
    """A time since the beginning, short."""
    whole = round(seconds)
    if 0 < seconds < 2 and seconds != whole:
        return f"{seconds:.1f} s"
    if whole < 120:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60}:{whole % 60:02d}"
    days, hours, minutes = whole // 86400, whole % 86400 // 3600, whole % 3600 // 60
    return f"{days} d {hours:02d}:{minutes:02d}" if days else f"{hours}:{minutes:02d} h"
