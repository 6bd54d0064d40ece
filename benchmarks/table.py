"""Figures out of runs, and tables out of figures (pure).

The median is the figure; beside it stands how far the runs were apart: from the least to the greatest where there are
fewer than ten, from the 10th to the 90th percentile otherwise. A run that did not get there within its bound counts as
longer than any other, so that it moves the median instead of disappearing.

The runs of two launchers were interleaved, so that the i-th of one and the i-th of the other saw the same machine: the
spread of their ratio is that of these pairs.
"""

import dataclasses
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

MANY = 10
"""From so many runs on, percentiles say more than extremes."""

BEGIN, END = "<!-- begin: {} -->", "<!-- end: {} -->"
MACHINES = "machines"
"""The section of a document that lists what its tables were made on."""


@dataclass(frozen=True, slots=True)
class Series:
    """The runs of one launcher in one case.

    Attributes:
        name: the launcher, with what was set.
        seconds: per round of the contest, in order; None where it did not get there within `bound`.
        rounds: the number of the contest's round of each run.
        bound: seconds after which a run was given up.
        notes: what became of the runs that did not get there, in words.
        phases: per run, in the same order, the seconds of each phase; None where it did not tell.
    """

    name: str
    seconds: tuple[float | None, ...]
    rounds: tuple[int, ...]
    bound: float
    notes: tuple[str, ...] = ()
    phases: tuple[tuple[float, ...] | None, ...] = ()

    @property
    def told(self) -> tuple[tuple[float, ...], ...]:
        """The phases of the runs that told them."""
        return tuple(run for run in self.phases if run is not None)

    @property
    def reached(self) -> int:
        """How many runs got there."""
        return sum(one is not None for one in self.seconds)


@dataclass(frozen=True, slots=True)
class Figure:
    """A median and its spread; infinite means: not within the bound."""

    median: float
    low: float
    high: float
    n: int

    @property
    def percentiles(self) -> bool:
        """Whether low and high are the 10th and 90th percentile, not the extremes."""
        return self.n >= MANY


def quantile(values: Sequence[float], share: float) -> float:
    """The value below which `share` (0 to 1) of `values` lie, linear between neighbours; infinite ones are allowed."""
    if not values:
        raise ValueError("no runs, no quantile")
    ordered = sorted(values)
    place = share * (len(ordered) - 1)
    low, high = ordered[math.floor(place)], ordered[math.ceil(place)]
    return low if low == high else low + (high - low) * (place - math.floor(place))


def figure(values: Sequence[float]) -> Figure:
    """The median and the spread of at least one value."""
    edges = (0.1, 0.9) if len(values) >= MANY else (0.0, 1.0)
    return Figure(quantile(values, 0.5), quantile(values, edges[0]), quantile(values, edges[1]), len(values))


def times(series: Series) -> Figure:
    """A launcher's seconds."""
    return figure([math.inf if one is None else one for one in series.seconds])


@dataclass(frozen=True, slots=True)
class Ratio:
    """How many times longer the peer took.

    Attributes:
        of_medians: the ratio of the medians.
        low, high: the spread of the ratios of the pairs.
        pairs: rounds in which both ran and ours got there.
        limits: for each of the three, that it is only a lower limit: the peer did not get there, and its bound counts.
    """

    of_medians: float
    low: float
    high: float
    pairs: int
    limits: tuple[bool, bool, bool]


def ratio(ours: Series, peer: Series) -> Ratio | None:
    """The peer's time in ours, over the rounds in which both ran.

    None where nothing can be said: there is no such round, or ours did not get there in half of them.
    """
    own = dict(zip(ours.rounds, ours.seconds, strict=True))
    both = [(own[number], time) for number, time in zip(peer.rounds, peer.seconds, strict=True) if number in own]
    if not both:
        return None
    mine = quantile([math.inf if one is None else one for one, _ in both], 0.5)
    if math.isinf(mine):
        return None
    theirs = quantile([math.inf if time is None else time for _, time in both], 0.5)
    pairs = [((peer.bound if time is None else time) / one, time is None) for one, time in both if one is not None]
    spread = figure([value for value, _ in pairs])
    return Ratio(
        of_medians=(peer.bound if math.isinf(theirs) else theirs) / mine,
        low=spread.low,
        high=spread.high,
        pairs=len(pairs),
        limits=(math.isinf(theirs), all(missed for _, missed in pairs), any(missed for _, missed in pairs)),
    )


def seconds(value: float, bound: float = math.inf) -> str:
    """A time with two or three significant figures where it has so many, or `>bound`."""
    if math.isnan(value):
        return "-"
    if math.isinf(value):
        return "never" if math.isinf(bound) else f">{bound:g}"
    if not value:
        return "0"
    digits = 4 if value < 0.01 else 3 if value < 1 else 2 if value < 10 else 1
    return f"{value:.{digits}f}"


def factor(value: float, limit: bool = False) -> str:
    """`4.2x`; `>4.2x` for a lower limit."""
    digits = 2 if value < 1 else 1 if value < 20 else 0
    return f"{'>' if limit else ''}{value:.{digits}f}x"


def until_phase(series: Series, place: int) -> Series | None:
    """The same runs, timed only until the end of the phase at `place`.

    None unless every run told its phases: what the others would have shown is not known.
    """
    if len(series.told) < len(series.seconds):
        return None
    return dataclasses.replace(series, seconds=tuple(sum(run[: place + 1]) for run in series.told), notes=())


def of_phase(series: Series, place: int) -> Series:
    """The same runs, timed for the phase at `place` alone (infinite: not within the bound).

    No runs where the launcher does not have that phase (NaN).
    """
    told = [None if run is None else run[place] for run in series.phases]
    if any(one is not None and math.isnan(one) for one in told):
        return dataclasses.replace(series, seconds=(), rounds=(), notes=(), phases=())
    reached = tuple(None if one is None or math.isinf(one) else one for one in told)
    return dataclasses.replace(series, seconds=reached, notes=())


def headings(unit: str = "s") -> tuple[str, ...]:
    """What stands over the columns of `rows`."""
    ratios = ("peer / elastic-run", "of the pairs")
    return ("until", "peer", *ratios, f"elastic-run, {unit}", f"peer, {unit}", "peer got there")


def rows(until: str, ours: Series, peers: Iterable[Series]) -> list[tuple[str, ...]]:
    """One row per peer that ran, under `headings`; `until` names the end of what was timed."""
    return [(until, *_row(ours, peer)) for peer in peers if peer.seconds]


def alone(until: str, ours: Series) -> list[tuple[str, ...]]:
    """The row of what no peer ran, under `headings`."""
    return [(until, "-", "-", "-", _times(ours), "-", "-")] if ours.seconds else []


def _row(ours: Series, peer: Series) -> tuple[str, ...]:
    compared = ratio(ours, peer)
    middle = spread = "-"
    if compared is not None:
        of_medians, low, high = compared.limits
        middle = factor(compared.of_medians, of_medians)
        pairs = "1 pair" if compared.pairs == 1 else f"{compared.pairs} pairs"
        spread = f"{factor(compared.low, low)} - {factor(compared.high, high)}, {pairs}"
    reached = f"{peer.reached} of {len(peer.seconds)}"
    return (peer.name, middle, spread, _times(ours), _times(peer), reached)


def _times(series: Series) -> str:
    if not series.seconds:
        return "no runs"
    got = times(series)
    edges = f"{seconds(got.low, series.bound)} - {seconds(got.high, series.bound)}"
    missed = len(series.seconds) - series.reached
    text = f"{seconds(got.median, series.bound)} ({edges}, n={got.n})"
    return text + (f", {missed} never" if missed and not math.isinf(got.median) else "")


def phase_rows(
    names: Sequence[str], series: Iterable[Series], title: str = "median seconds of"
) -> tuple[tuple[str, ...], list[tuple[str, ...]]]:
    """The headings and rows of the table of phases: the median of each phase, a column per launcher."""
    told = [one for one in series if one.told]
    body = [
        (name, *(seconds(quantile([run[place] for run in one.told], 0.5)) for one in told))
        for place, name in enumerate(names)
    ]
    return (title, *(one.name for one in told)), body


def plain(headings: Sequence[str], body: Iterable[Sequence[str]]) -> str:
    """Columns for a terminal."""
    lines = [tuple(headings), *(tuple(row) for row in body)]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in lines
    )


def markdown(headings: Sequence[str], body: Iterable[Sequence[str]]) -> str:
    """The same as a table of a document."""
    lines = [tuple(headings), tuple("---" for _ in headings), *(tuple(row) for row in body)]
    return "\n".join("| " + " | ".join(row) + " |" for row in lines)


def machine(document: str, facts: str) -> tuple[int, str]:
    """The number under which `document` lists the machine with these facts, and the document with a line for it."""
    section = document.partition(BEGIN.format(MACHINES))[2].partition(END.format(MACHINES))[0]
    known = [line.partition(". ")[2] for line in section.splitlines() if line]
    if facts not in known:
        known.append(facts)
    lines = "\n".join(f"{number}. {line}" for number, line in enumerate(known, 1))
    return known.index(facts) + 1, replaced(document, {MACHINES: lines})


def replaced(document: str, sections: Mapping[str, str]) -> str:
    """`document` with new text between the markers of each named section.

    Raises ValueError where a section has no markers: nothing is appended in silence.
    """
    for name, text in sections.items():
        begin, end = BEGIN.format(name), END.format(name)
        before, found, rest = document.partition(begin)
        _, closed, after = rest.partition(end)
        if not found or not closed:
            raise ValueError(f"the document has no section {name}: put {begin} and {end} where it shall stand")
        document = f"{before}{begin}\n\n{text.strip()}\n\n{end}{after}"
    return document
