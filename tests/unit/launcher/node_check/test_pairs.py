"""Who is checked with whom, and who is to blame."""

import itertools
import random

import pytest

from elastic_run.launcher.node_check.pairs import TURNS, Outcome, Pair, judge, pairs

FINE = Outcome(1e8)
BROKEN = Outcome(problem="connection refused")


def nodes(count: int) -> list[str]:
    return [f"n{number}" for number in range(count)]


def outcomes(names: list[str], bad: set[str], slow: set[str] = frozenset()) -> dict[tuple[int, Pair], Outcome]:  # type: ignore[assignment]
    return {
        (turn, pair): BROKEN if bad & set(pair) else Outcome(1e6) if slow & set(pair) else FINE
        for turn in range(TURNS)
        for pair in pairs(names, turn)
    }


@pytest.mark.parametrize("count", range(3, 40))
def test_every_node_has_a_partner_and_no_pair_meets_twice(count: int) -> None:
    both = [pairs(nodes(count), turn) for turn in range(TURNS)]
    met = [frozenset(pair) for turn in both for pair in turn]
    assert len(met) == len(set(met)) and {node for pair in met for node in pair} == set(nodes(count))
    for turn in both:
        assert len({node for pair in turn for node in pair}) == 2 * len(turn), "one at a time"


@pytest.mark.parametrize("count", range(3, 12))
def test_one_bad_node_is_told_from_its_partners(count: int) -> None:
    names = nodes(count)
    for bad in names:
        found = judge(names, outcomes(names, {bad}))
        alone = sum(bad in pair for turn in range(TURNS) for pair in pairs(names, turn)) == 1
        if alone and count == 3:
            assert found[bad].grade in ("bad", "unclear")
            continue
        assert {node for node in names if found[node].grade == "bad"} == {bad}, (count, bad, found)
        assert all(found[node].grade == "ok" for node in names if node != bad)


def test_of_two_it_is_said_that_nobody_can_tell() -> None:
    found = judge(["a", "b"], outcomes(["a", "b"], {"a"}))
    assert [found[node].grade for node in "ab"] == ["unclear", "unclear"]
    assert "which of the two is bad is not known" in found["a"].text and "connection refused" in found["a"].text


def test_a_node_alone_is_not_judged() -> None:
    assert judge(["a"], {})["a"].grade == "alone"


def test_a_slow_node_is_told_from_its_partners_by_its_best_pair() -> None:
    names = nodes(6)
    found = judge(names, outcomes(names, set(), {"n2"}))
    assert [node for node in names if found[node].grade == "bad"] == ["n2"]
    assert found["n2"].text == "1.0 MB/s in its best pair, where the median of all pairs is 100.0 MB/s"


def test_a_pair_of_which_nothing_is_heard_has_failed() -> None:
    names = nodes(4)
    heard = {key: value for key, value in outcomes(names, set()).items() if "n1" not in key[1]}
    assert judge(names, heard)["n1"].grade == "bad"


def test_a_good_node_is_never_called_bad() -> None:
    for seed in range(500):
        chance = random.Random(seed)
        names = nodes(chance.randrange(2, 12))
        bad = set(chance.sample(names, chance.randrange(0, len(names) // 2 + 1)))
        found = judge(names, outcomes(names, bad))
        wrong = [node for node in names if found[node].grade == "bad" and node not in bad]
        # Two bad partners make a good node look bad, so that at most these may be wrong.
        met = {frozenset(pair) for turn in range(TURNS) for pair in pairs(names, turn)}
        for node in wrong:
            partners = set(itertools.chain.from_iterable(pair for pair in met if node in pair)) - {node}
            assert partners <= bad, f"seed {seed}: {found}"
