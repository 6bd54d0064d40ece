"""What came of many runs: a matrix of what was injected and what was found, precision and recall (pure)."""

from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence

from .corpus import Draw
from .trial import Outcome

Scored = tuple[Draw, Outcome]


def is_right(draw: Draw, outcome: Outcome) -> bool:
    """The right rank and the right cause; of an innocent run, no finding."""
    if not draw.fault.kinds:
        return not outcome.kind
    if node := draw.fault.node:
        named = outcome.rank is None and outcome.words.startswith(f"node {node} ")
    else:
        named = draw.fault.anyone or outcome.rank == draw.rank
    return outcome.kind in draw.fault.kinds and named


def precision(scored: Sequence[Scored]) -> float:
    """Of the runs in which something was found, the share in which that was right."""
    found = [each for each in scored if each[1].kind]
    return sum(is_right(*each) for each in found) / len(found) if found else 1.0


def recall(scored: Sequence[Scored]) -> float:
    """Of the runs with a fault, the share in which it was found."""
    faulty = [each for each in scored if each[0].fault.kinds]
    return sum(is_right(*each) for each in faulty) / len(faulty) if faulty else 1.0


def lines(scored: Sequence[Scored]) -> Iterator[str]:
    """The matrix and the figures, as Markdown."""
    valid = [each for each in scored if each[1].valid]
    rows: defaultdict[str, list[Scored]] = defaultdict(list)
    for each in valid:
        rows[each[0].fault.label].append(each)
    heads = ("injected", "runs", "right", "wrong rank", "other findings", "nothing found", "median s", "longest s")
    yield f"| {' | '.join(heads)} |"
    yield "|---" * len(heads) + "|"
    for label, row in sorted(rows.items(), key=lambda each: (each[0].startswith("innocent"), each[0])):
        yield _row(label, row)
    late = sorted(outcome.seconds for draw, outcome in valid if outcome.seconds is not None and is_right(draw, outcome))
    faulty = sum(bool(draw.fault.kinds) for draw, _ in valid)
    kinds = len({draw.fault.label for draw, _ in valid if draw.fault.kinds})
    alarms = sum(bool(outcome.kind) for draw, outcome in valid if not draw.fault.kinds)
    yield ""
    shares = f"precision {100 * precision(valid):.1f} %, recall {100 * recall(valid):.1f} %"
    yield (
        f"{len(valid)} runs, {faulty} with a fault of {kinds} kinds and {len(valid) - faulty} innocent: {shares}, "
        f"{alarms} false alarms"
    )
    if late:
        within = sum(seconds <= 1.0 for seconds in late)
        yield (
            f"from sufficient evidence to the finding: median {late[len(late) // 2]:.2f} s, 95 % within "
            f"{late[min(len(late) - 1, int(0.95 * len(late)))]:.2f} s, within 1 s in {within} of {len(late)}"
        )
    if invalid := len(scored) - len(valid):
        yield f"{invalid} runs did not take place as they were meant, and are not counted"


def _row(label: str, row: Sequence[Scored]) -> str:
    right = [outcome for draw, outcome in row if is_right(draw, outcome)]
    rank = sum(outcome.kind in draw.fault.kinds and not is_right(draw, outcome) for draw, outcome in row)
    others = Counter(outcome.kind for draw, outcome in row if outcome.kind and outcome.kind not in draw.fault.kinds)
    missed = sum(not outcome.kind for draw, outcome in row if draw.fault.kinds)
    late = sorted(outcome.seconds for outcome in right if outcome.seconds is not None)
    cells = (
        label,
        len(row),
        len(right),
        rank or "",
        ", ".join(f"{kind} {count}" for kind, count in others.most_common()),
        missed or "",
        f"{late[len(late) // 2]:.2f}" if late else "",
        f"{late[-1]:.2f}" if late else "",
    )
    return "| " + " | ".join(map(str, cells)) + " |"
