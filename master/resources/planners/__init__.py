"""The algorithms of `--plan`, one file each; packages bring others (entry points `elastic_run.planners`).

An algorithm says which of the measured sizes is the best, and which other is worth a look. `sizing.py` carries that
out, with the rules that hold for all of them: one change at a time, each measured, and what all looks may cost.
"""

from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from typing import TYPE_CHECKING, Any, Protocol, cast

from ....rendezvous.base.errors import ElasticRunError
from ....rendezvous.base.frozen import dataclass
from ....rendezvous.wire.fields import Number, Words

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

GROUP = "elastic_run.planners"
"""The group of entry points. A point's name is the algorithm's; its object is called with the options as keywords, all
of them texts, and returns the `Planner`. It raises ValueError, which says what is wrong with an option."""

BUILT_IN: Mapping[str, str] = {
    "fixed": "fixed:Fixed",
    "goodput": "goodput:ByGoodput",
    "deadline": "deadline:ByDeadline",
    "budget": "budget:ByBudget",
}
"""The module and the class of each."""


class NoPlanner(ElasticRunError):
    """`--plan` names an algorithm that is not there, or options that it does not take."""


@dataclass(frozen=True, slots=True)
class SizeChoice:
    """A number of nodes, and why, as a sentence for a person without its full stop."""

    nodes: Number
    why: Words


@dataclass(frozen=True, slots=True)
class SizesSeen:
    """What is known of a job's sizes.

    Attributes:
        sizes: numbers of nodes that it may have, in increasing order.
        nodes: that it has.
        rates: work a second by nodes, where it was measured; that of `nodes` is among them. Work is steps times
            workers, unless the algorithm counts steps alone.
        elapsed: seconds since its first step.
        work: done since then.
        node_seconds: that its nodes have taken part, all together.
    """

    sizes: Sequence[int]
    nodes: int
    rates: Mapping[int, float]
    elapsed: float
    work: float
    node_seconds: float = 0.0


class Planner(Protocol):
    """One algorithm, for one job. Its methods are pure: equal arguments have equal answers.

    Attributes:
        steps_alone: a step is the same work with any number of workers (the script divides one batch among them).
        cap: the share of the work so far that all looks at other sizes together may cost.
    """

    steps_alone: bool
    cap: float

    def choose(self, seen: SizesSeen) -> SizeChoice:
        """The size that the job keeps, among those that were measured."""
        ...

    def explore(self, seen: SizesSeen) -> SizeChoice | None:
        """Another size that is worth a look; None where there is none."""
        ...

    def moves(self, seen: SizesSeen, best: SizeChoice) -> bool:
        """Whether the job, without a look, changes to what `choose` says. Not where noise alone may say so."""
        ...


def load(text: str) -> Planner:
    """The algorithm of `NAME[:KEY=VALUE,...]`. Raises NoPlanner."""
    name, _, rest = text.partition(":")
    options = dict[str, str]()
    for part in filter(None, rest.split(",")):
        key, mark, value = part.partition("=")
        if not mark or not key.isidentifier():
            raise NoPlanner(f"{part!r} is no option of a plan: write --plan={name}:KEY=VALUE,...")
        options[key] = value
    try:
        maker = _maker(name)
        if name in BUILT_IN and (words := _compare_options(maker, options)):
            raise NoPlanner(f"the plan {name!r} {words}")
        return cast(Planner, maker(**options))
    except NoPlanner:
        raise
    except (TypeError, ValueError) as error:
        raise NoPlanner(f"the plan {name!r} does not take these options: {error}") from error
    except Exception as error:  # code that is not ours
        raise NoPlanner(f"the plan {name!r} cannot be used: {type(error).__name__}: {error}") from error


def _compare_options(maker: Callable[..., Any], options: Mapping[str, str]) -> str:  # Any: as in `_maker`
    """What is wrong with their names; empty: nothing."""
    from inspect import signature  # here, because few jobs have a plan

    taken = signature(maker).parameters
    if other := next((key for key in options if key not in taken), ""):
        return f"has no option {other!r}: it takes {', '.join(taken)}"
    lacks = [f"{key}=..." for key, each in taken.items() if each.default is each.empty and key not in options]
    return f"needs {' and '.join(lacks)}" if lacks else ""


def _maker(name: str) -> Callable[..., Any]:  # Any: whatever a package has there
    if name in BUILT_IN:
        module, _, wanted = BUILT_IN[name].partition(":")
        return cast(Callable[..., Any], getattr(import_module(f".{module}", __package__), wanted))
    from importlib.metadata import entry_points  # here, because most jobs need none, and it takes a while to load

    points: Mapping[str, EntryPoint] = {point.name: point for point in entry_points(group=GROUP)}
    if name not in points:
        brought = ", ".join(sorted(points.keys() - BUILT_IN.keys())) or "no other"
        raise NoPlanner(
            f"there is no plan {name!r}: {', '.join(BUILT_IN)} are built in, and installed packages bring {brought}"
        )
    return cast(Callable[..., Any], points[name].load())
