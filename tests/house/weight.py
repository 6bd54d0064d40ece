"""What is too heavy in the product, as a list that may only become shorter.

    python -m tests.house.weight            prints what is heavy now
    python -m tests.house.weight --write    removes from weight.txt what is no longer heavy; it never adds

A line of `weight.txt` is a kind, a name, a place and a number:

- `class`: a class whose name, without leading underscores, is that of a class in another file;
- `function`: a function, or a method, that is named by a bare verb;
- `lines`: a file with more lines than `MOST_LINES`, and how many it has;
- `methods`: a class with more methods than `MOST_METHODS`, and how many it has.

The number of a `class` or a `function` says how many of that name the place has.
"""

import ast
import sys
from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from .sources import FOLDERS, files, nodes, place, text

LIST = Path(__file__).with_name("weight.txt")
BARE_VERBS = frozenset(("ask", "found", "hear", "keep", "know", "look", "made", "say", "take", "tell", "told"))
MOST_LINES, MOST_METHODS = 500, 30
SHORTEN = "python -m tests.house.weight --write, which only ever shortens the list"

Definition = ast.FunctionDef | ast.AsyncFunctionDef


@dataclass(frozen=True, slots=True, order=True)
class Offender:
    """One thing that is too heavy."""

    kind: str
    name: str
    place: str
    number: int

    def __str__(self) -> str:
        return f"{self.kind} {self.name} {self.place} {self.number}"


def heavy() -> list[Offender]:
    """Every offender of today, sorted."""
    classes: dict[str, Counter[tuple[str, str]]] = defaultdict(Counter)
    functions: Counter[tuple[str, str]] = Counter()
    found: list[Offender] = []
    for path in files(*FOLDERS, "src"):
        where = place(path)
        if (lines := text(path).count("\n")) > MOST_LINES:
            found.append(Offender("lines", path.name, where, lines))
        for node in nodes(path):
            if isinstance(node, ast.ClassDef):
                classes[node.name.lstrip("_")][node.name, where] += 1
                if (methods := sum(isinstance(each, Definition) for each in node.body)) > MOST_METHODS:
                    found.append(Offender("methods", node.name, where, methods))
            elif isinstance(node, Definition) and node.name.strip("_") in BARE_VERBS:
                functions[node.name, where] += 1
    for places in classes.values():
        if len({where for _, where in places}) > 1:
            found += [Offender("class", name, where, number) for (name, where), number in places.items()]
    found += [Offender("function", name, where, number) for (name, where), number in functions.items()]
    return sorted(found)


def listed() -> list[Offender]:
    """What the list allows."""
    found: list[Offender] = []
    for line in LIST.read_text(encoding="utf-8").splitlines():
        kind, name, where, number = line.split(" ")
        found.append(Offender(kind, name, where, int(number)))
    return found


def complaints(today: list[Offender], allowed: list[Offender]) -> Iterator[str]:
    """What is wrong with the house, or with its list; nothing where they agree.

    An offender may move to another file under its name, where the list then has a place that is gone.
    """
    places = {(each.kind, each.name, each.place): each.number for each in allowed}
    now = {(each.kind, each.name, each.place) for each in today}
    left: dict[tuple[str, str], list[Offender]] = defaultdict(list)
    for each in allowed:
        if (each.kind, each.name, each.place) not in now:
            left[each.kind, each.name].append(each)
    for each in today:
        most = places.get((each.kind, each.name, each.place), 0)
        if not most and left[each.kind, each.name]:
            most = left[each.kind, each.name].pop().number
        if each.number > most:
            more = f" (the list allows {most})" if most else ""
            yield f"new: {each}{more}: {'rename' if each.kind in ('class', 'function') else 'split'} it"
        elif each not in allowed:
            yield f"less, or moved: {each}: run {SHORTEN}"
    for gone in (each for rest in left.values() for each in rest):
        yield f"gone: {gone}: run {SHORTEN}"


def summary(today: list[Offender]) -> str:
    """The numbers of a list, as a sentence."""
    spelled: dict[str, set[str]] = defaultdict(set)
    for each in today:
        if each.kind == "class":
            spelled[each.name].add(each.place)
    shared = len({name.lstrip("_") for name in spelled})
    same = sum(len(places) > 1 for places in spelled.values())
    of = Counter({kind: sum(each.kind == kind for each in today) for kind in ("lines", "methods")})
    verbs = sum(each.number for each in today if each.kind == "function")
    return (
        f"{same} class names in several files ({shared} without leading underscores), {verbs} functions named by a "
        f"bare verb, {of['lines']} files over {MOST_LINES} lines, {of['methods']} classes over {MOST_METHODS} methods"
    )


def main(arguments: list[str]) -> int:
    """Returns the exit code: 1 where something new is heavy, which `--write` refuses to list."""
    today = heavy()
    wrong = list(complaints(today, listed()))
    new = [line for line in wrong if line.startswith("new")]
    if arguments == ["--write"] and not new:
        LIST.write_text("".join(f"{each}\n" for each in today), encoding="utf-8")
        wrong = []
    print("\n".join([*(wrong if arguments else map(str, today)), summary(today)]))
    return 1 if new else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
