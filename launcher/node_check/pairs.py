"""Who is checked with whom, and who is to blame (pure).

A collective of two that fails says that one of the two is bad, not which. So there are two turns, and in the second
each node has another partner: the node that fails with both is bad, where its partners do not fail with others.
"""

import statistics
from collections.abc import Collection, Mapping, Sequence
from typing import Literal

from ...rendezvous.base.frozen import dataclass

TURNS = 2

SLOW = 4.0
"""A node whose best pair is slower than the median of all pairs by this factor is too slow for the job."""

ENOUGH = 3
"""Pairs that have to have succeeded before their median says anything."""

MARK = "#"
"""In a node's name: what follows is random, so that no two nodes of one host have one name."""

Pair = tuple[str, str]


@dataclass(frozen=True, slots=True)
class Outcome:
    """What came of one pair's collective.

    Attributes:
        speed: bytes a second that each of the two has sent; 0 where it failed.
        problem: why it failed; empty where it did not.
        ahead: seconds by which this node's clock is ahead of its partner's.
    """

    speed: float = 0.0
    problem: str = ""
    ahead: float = 0.0


@dataclass(frozen=True, slots=True)
class Verdict:
    """What the pairs say of one node.

    Attributes:
        grade: bad: it failed, and others did not; unclear: it failed, and so may its partner have; alone: nobody was
            there to check it with.
        text: the figure that says so.
    """

    grade: Literal["ok", "bad", "unclear", "alone"]
    text: str


def pairs(nodes: Sequence[str], turn: int) -> tuple[Pair, ...]:
    """The pairs of a turn; of an odd number of nodes one has no partner in it."""
    order = [*nodes[turn:], *nodes[:turn]]
    return tuple((order[index], order[index + 1]) for index in range(0, len(order) - 1, 2))


def judge(nodes: Sequence[str], outcomes: Mapping[tuple[int, Pair], Outcome]) -> Mapping[str, Verdict]:
    """What the outcomes of both turns say of each node. A pair of which nothing was heard has failed."""
    had: dict[str, list[tuple[Pair, Outcome]]] = {node: [] for node in nodes}
    for turn in range(TURNS):
        for pair in pairs(nodes, turn):
            outcome = outcomes.get((turn, pair), Outcome(problem="no result arrived"))
            for node in pair:
                had[node].append((pair, outcome))
    good = {node for node, found in had.items() if any(not outcome.problem for _, outcome in found)}
    bad = {node for node, found in had.items() if found and node not in good and _others(node, found) <= good}
    # Of what is left, who is in several failed pairs that nobody bad explains.
    failed = {frozenset(pair) for found in had.values() for pair, outcome in found if outcome.problem}
    open_ = {pair for pair in failed if not bad & pair}
    for node in nodes:
        if node not in good | bad and sum(node in pair for pair in open_) > 1:
            bad.add(node)
            open_ = {pair for pair in open_ if node not in pair}
    speeds = [outcome.speed for found in had.values() for _, outcome in found if not outcome.problem]
    median = statistics.median(speeds) if len(speeds) >= 2 * ENOUGH else None
    return {node: _of(node, found, bad, open_, median) for node, found in had.items()}


def _others(node: str, found: Sequence[tuple[Pair, Outcome]]) -> set[str]:
    return {each for pair, _ in found for each in pair if each != node}


def shown(node: str) -> str:
    """Without what makes it one of its own."""
    return node.partition(MARK)[0]


def _of(
    node: str,
    found: Sequence[tuple[Pair, Outcome]],
    bad: set[str],
    open_: Collection[frozenset[str]],
    median: float | None,
) -> Verdict:
    if not found:
        return Verdict("alone", "no other node came to be checked with")
    failed = [(pair, outcome) for pair, outcome in found if outcome.problem]
    names = " and ".join(sorted(map(shown, _others(node, found))))
    if node in bad:
        return Verdict("bad", f"its collectives with {names} failed ({failed[0][1].problem}), and theirs did not")
    blamed = [(pair, outcome) for pair, outcome in failed if frozenset(pair) in open_]
    if blamed:
        (pair, outcome) = blamed[0]
        other = shown(next(each for each in pair if each != node))
        return Verdict(
            "unclear", f"its collective with {other} failed ({outcome.problem}); which of the two is bad is not known"
        )
    best = max((outcome.speed for _, outcome in found if not outcome.problem), default=0.0)
    if median is not None and 0 < best * SLOW < median:
        return Verdict("bad", f"{_mega(best)} in its best pair, where the median of all pairs is {_mega(median)}")
    if not best:  # its partner is to blame, and it had no other
        return Verdict("ok", f"its only partner, {names}, is bad: it was not measured")
    return Verdict("ok", f"{_mega(best)} in a collective with {names}")


def _mega(speed: float) -> str:
    return f"{speed / 1e6:.1f} MB/s"
