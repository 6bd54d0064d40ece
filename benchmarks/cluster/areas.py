"""Pictures of CPUs over time, as SVG (pure): areas of several owners, one above the other."""

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

from .usage import Curve

WIDTH, LEFT, RIGHT = 760, 60, 20
HEIGHT, GAP, TOP = 130, 58, 62
COLOURS = ("#2ca02c", "#1f77b4", "#ff7f0e", "#9467bd", "#8c564b")
STEPS = 700
"""Of a curve that changes more often, so many points are drawn: the mean of each part."""


@dataclass(frozen=True, slots=True)
class Area:
    """What one owner has. `colour`: empty: the next of the usual ones."""

    name: str
    curve: Curve
    colour: str = ""


@dataclass(frozen=True, slots=True)
class Panel:
    """One diagram. `most`: where its axis of CPUs ends."""

    title: str
    areas: tuple[Area, ...]
    most: float


def draw(title: str, panels: Sequence[Panel], foot: str, *, unit: str = "s", per_unit: float = 1.0) -> str:
    """The panels below each other, along one line of time. `per_unit`: seconds of a unit of time."""
    end = max(area.curve.times[-1] for panel in panels for area in panel.areas if area.curve.times)
    scale = (WIDTH - LEFT - RIGHT) / end
    parts: list[str] = []
    names = list(dict.fromkeys((area.name, area.colour) for panel in panels for area in panel.areas))
    x = float(LEFT)
    colours: dict[str, str] = {}
    for place, (name, colour) in enumerate(names):
        colours[name] = colour or COLOURS[place % len(COLOURS)]
        parts.append(f'<rect x="{x:.0f}" y="34" width="12" height="12" fill="{colours[name]}"/>')
        parts.append(_text(x + 17, 44, name))
        x += 40 + 6.6 * len(name)
    y = TOP
    for panel in panels:
        parts += _panel(panel, y, end, scale, colours, unit, per_unit)
        y += HEIGHT + GAP
    parts.append(_text(LEFT, y - 4, foot, colour="#777"))
    height = y + 10
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" font-family="sans-serif" '
        f'font-size="12"><title>{escape(title)}</title>\n<rect width="{WIDTH}" height="{height}" fill="white"/>'
    )
    heading = f'<text x="20" y="24" font-weight="bold">{escape(title)}</text>'
    return "\n".join([head, heading, *parts, "</svg>\n"])


def _panel(
    panel: Panel, top: int, end: float, scale: float, colours: dict[str, str], unit: str, per_unit: float
) -> list[str]:
    bottom = top + 18 + HEIGHT
    up = HEIGHT / panel.most
    parts = [_text(LEFT, top + 12, panel.title)]
    below = Curve([0.0], [0.0])
    for area in panel.areas:
        above = _sum(below, area.curve)
        parts.append(
            f'<path d="{_outline(below, above, end, scale, bottom, up)}" fill="{colours[area.name]}">'
            f"<title>{escape(area.name)}</title></path>"
        )
        below = above
    lines = 4 if panel.most % 4 == 0 else 3
    for part in range(lines + 1):
        level = bottom - HEIGHT * part / lines
        parts.append(f'<path d="M{LEFT},{level:.1f}H{WIDTH - RIGHT}" stroke="#0002"/>')
        parts.append(_text(LEFT - 6, round(level + 4), f"{panel.most * part / lines:g}", anchor="end"))
    step = _step(end / per_unit)
    for number in range(int(end / per_unit / step) + 1):
        x = LEFT + number * step * per_unit * scale
        parts.append(f'<path d="M{x:.1f},{bottom}v4" stroke="#555"/>')
        parts.append(_text(x, bottom + 16, f"{number * step:g} {unit}", anchor="middle"))
    return parts


def _outline(below: Curve, above: Curve, end: float, scale: float, bottom: float, up: float) -> str:
    forth = _points(above, end)
    back = _points(below, end)
    path = "".join(f"L{LEFT + at * scale:.1f},{bottom - value * up:.1f}" for at, value in (*forth, *reversed(back)))
    return f"M{path[1:]}Z"


def _points(curve: Curve, end: float) -> list[tuple[float, float]]:
    """The corners of its steps, or its means where there are too many."""
    if len(curve.times) > STEPS:
        width = end / STEPS
        means = [curve.total(width * part, width * (part + 1)) / width for part in range(STEPS)]
        curve = Curve([width * part for part in range(STEPS)], means)
    points = [(0.0, curve.at(0.0))]
    for at, value in zip(curve.times, curve.values, strict=True):
        points += [(at, points[-1][1]), (at, value)]
    return [*points, (end, points[-1][1])]


def _sum(one: Curve, other: Curve) -> Curve:
    found = Curve()
    for moment in sorted({*one.times, *other.times}):
        found.set(one.at(moment) + other.at(moment), moment)
    return found


def _step(end: float) -> float:
    """Some eight round steps up to `end`."""
    power = 1.0
    while power * 80 < end:
        power *= 10
    while power * 8 > end * 2:
        power /= 10
    return next(power * factor for factor in (1, 2, 5, 10, 20) if power * factor * 8 >= end)


def _text(x: float, y: float, words: str, anchor: str = "start", colour: str = "#222") -> str:
    return f'<text x="{x:.1f}" y="{y}" text-anchor="{anchor}" fill="{colour}">{escape(words)}</text>'
