"""What a result looks like, on a terminal and in a document (pure)."""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence

from . import table
from .case import Case
from .contest import Result
from .launchers import NAMES
from .table import Series

Draw = Callable[[Sequence[str], Iterable[Sequence[str]]], str]


def text(result: Result) -> str:
    """For a terminal."""
    names = f"{NAMES}." if any("noshare" in peer.name for peer in result.case.peers) else ""
    about = " ".join(filter(None, (result.case.about, result.case.common, names)))
    return f"{result.case.title}\n{about}\n\n{_tables(result, table.plain)}"


def markdown(result: Result, command: str, machine: int) -> str:
    """A section of a document, with the command that makes it again, on a machine that `table.machine` has listed."""
    made = f"Made by `{command}` on machine {machine}; {_load(result)}."
    return f"{caption(result.case)}\n\n{_tables(result, table.markdown)}\n\n{made}"


def caption(case: Case) -> str:
    """What stands above a table of a document."""
    return f"**{case.title[0].upper()}{case.title[1:]}.** {case.about}".rstrip()


def _tables(result: Result, draw: Draw) -> str:
    everyone = (result.ours, *result.peers)
    rows = _rows(result.case.until, result.ours, result.peers)
    for place, name in enumerate(result.case.phases[: result.case.own_rows]):
        ours, *peers = (table.of_phase(one, place) for one in everyone)
        rows += _rows(name, ours, peers)
    headings, phases = table.phase_rows(result.case.phases, everyone, result.case.parts)
    if len(headings) > 1 and result.case.first_phase:
        ours, *peers = (table.until_phase(one, 0) for one in everyone)
        if ours is not None:
            rows += table.rows(result.case.first_phase, ours, [peer for peer in peers if peer is not None])
    parts = [draw(table.headings(result.case.unit), rows)]
    below = phases[result.case.own_rows :]
    if len(headings) > 1 and below:
        parts.append(draw(headings, below))
    notes = [f"{one.name}: {note}" for one in everyone for note in one.notes]
    short = len(result.ours.seconds) < result.wanted
    if short:
        notes.append(f"the time was up after {len(result.ours.seconds)} of {result.wanted} rounds")
    if notes:
        parts.append("\n".join(f"- {note}" for note in dict.fromkeys(_counted(notes))))
    if draw is table.plain:
        parts.append(_load(result))
    return "\n\n".join(parts)


def _rows(until: str, ours: Series, peers: Sequence[Series]) -> list[tuple[str, ...]]:
    return table.rows(until, ours, peers) or table.alone(until, ours)


def _counted(notes: Sequence[str]) -> list[str]:
    """Each note's first line, with how often it came."""
    heads = [note.splitlines()[0] for note in notes]
    return [head + (f" ({heads.count(head)} times)" if heads.count(head) > 1 else "") for head in heads]


def _load(result: Result) -> str:
    before, after = result.load
    return f"load average {before:.1f} before and {after:.1f} after"


def raw(result: Result) -> Mapping[str, object]:
    """Every run, for a program, in the case's unit; null where a run did not get there within `bound`.

    So it is with a median and percentiles, and `ratio` (peer / elastic-run) is then null or a lower limit.
    """
    case = result.case
    return {
        "case": case.name,
        "title": case.title,
        "unit": case.unit,
        "bound": case.bound,
        "rounds_wanted": result.wanted,
        "load_average": {"before": result.load[0], "after": result.load[1]},
        "phases": list(case.phases),
        "launchers": [
            {
                "name": one.name,
                **_figures(result.ours, one),
                "seconds": list(one.seconds),
                "rounds": list(one.rounds),
                "phases": [None if run is None else [_number(phase) for phase in run] for run in one.phases],
                "notes": list(one.notes),
            }
            for one in (result.ours, *result.peers)
        ],
    }


def _number(value: float) -> float | None:
    return value if math.isfinite(value) else None


def _figures(ours: table.Series, one: table.Series) -> Mapping[str, object]:
    if not one.seconds:
        return {"n": 0}
    runs = [math.inf if run is None else run for run in one.seconds]
    found = {name: table.quantile(runs, share) for name, share in (("median", 0.5), ("p10", 0.1), ("p90", 0.9))}
    compared = None if one is ours else table.ratio(ours, one)
    return {
        "n": len(runs),
        "reached": one.reached,
        **{name: None if math.isinf(value) else value for name, value in found.items()},
        "ratio": compared and {"of_medians": compared.of_medians, "lower_limit": compared.limits[0]},
    }
