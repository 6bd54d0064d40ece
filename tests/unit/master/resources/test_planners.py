"""The law of a step, what the algorithms of `--plan` say of sizes that were measured, and how they are named."""

import importlib.metadata
import re
from collections.abc import Mapping
from importlib.metadata import EntryPoint, EntryPoints

import pytest

from elastic_run.master.resources.planners import NoPlanner, SizesSeen, load
from elastic_run.master.resources.planners.fixed import Fixed
from elastic_run.master.resources.planners.goodput import ByGoodput
from elastic_run.master.resources.step_law import StepLaw, fit
from elastic_run.master.resources.step_rates import measure


def seen(rates: Mapping[int, float], nodes: int, most: int = 16) -> SizesSeen:
    return SizesSeen(range(1, most + 1), nodes, rates, 100.0, 1000.0)


def test_a_law_of_the_four_terms_is_found_again() -> None:
    law = StepLaw((0.8, 0.1, 0.0, 0.01))
    found = fit({size: law.seconds(size) for size in (1, 2, 4, 8, 16)})
    assert found.weights == pytest.approx(law.weights, abs=1e-9)


def test_a_law_has_no_term_that_saves_time_and_one_measurement_is_enough_for_one() -> None:
    assert min(fit({1: 1.0, 2: 0.3, 4: 0.05}).weights) >= 0.0
    assert fit({4: 0.5}).seconds(4) == pytest.approx(0.5)


def test_nodes_that_only_wait_for_each_other_are_not_worth_having() -> None:
    rates = {size: size / StepLaw((0.0, 0.0, 0.0, 0.05)).seconds(size) for size in (2, 4)} | {1: 20.0}
    found = ByGoodput().choose(seen(rates, 4))
    assert found.nodes == 2
    assert found.why.startswith("2 nodes: 1 more node would cost ") and found.why.endswith(
        "by what 1, 2 and 4 nodes did"
    )


def test_a_look_is_the_place_where_the_law_says_that_more_is_to_be_had() -> None:
    law = StepLaw((1.0, 0.0, 0.0, 0.02))  # one batch for all: most with 7 nodes
    rates = {size: 1 / law.seconds(size) for size in (1, 2, 4)}
    found = ByGoodput("job").explore(seen(rates, 4))
    assert found and 6 <= found.nodes <= 8 and found.why.endswith("more, by what 1, 2 and 4 nodes did")
    assert ByGoodput("job").explore(seen(rates | {found.nodes: 1 / law.seconds(found.nodes)}, found.nodes)) is None


def test_where_the_law_does_not_fit_a_bound_says_where_more_may_be() -> None:
    found = ByGoodput().explore(seen({1: 20.0, 2: 40.0, 4: 80.0, 8: 40.0}, 4))
    assert found and 4 < found.nodes < 8 and "may do up to" in found.why


def test_the_first_look_is_at_twice_as_many_and_there_is_none_at_a_number_that_no_job_may_have() -> None:
    found = ByGoodput().explore(seen({3: 10.0}, 3))
    assert found and found.nodes == 6
    assert ByGoodput().explore(seen({1: 10.0}, 1, most=1)) is None


def test_a_fixed_number_is_looked_at_once_and_kept_whatever_it_does() -> None:
    found = Fixed("4").explore(seen({1: 10.0}, 1))
    assert found and found.nodes == 4
    assert Fixed("4").choose(seen({1: 10.0, 4: 1.0}, 1)).nodes == 4
    assert Fixed("4").explore(seen({1: 10.0, 4: 1.0}, 4)) is None
    assert Fixed().explore(seen({2: 10.0}, 2)) is None


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (
            "guess",
            "fixed, goodput, deadline, budget are built in, and installed packages bring tidy",
        ),
        ("goodput:batch", "'batch' is no option of a plan: write --plan=goodput:KEY=VALUE"),
        ("goodput:batch=all", "write batch=worker or batch=job"),
        ("goodput:cap=2", "write cap=0.05 for 5 %"),
        ("goodput:limit=2", "limit"),
        ("fixed:nodes=few", "nodes=few is no number of nodes"),
        ("deadline", "needs work=... and seconds=..."),
        ("deadline:work=0,seconds=9", "both are more than 0"),
        ("budget:work=9,node_seconds=0", "both are more than 0"),
    ],
)
def test_a_plan_that_cannot_be_used_is_refused_with_what_to_write(
    text: str, words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def entry_points(*, group: str) -> EntryPoints:
        return EntryPoints([EntryPoint("tidy", f"{Fixed.__module__}:Fixed", group)])

    monkeypatch.setattr(importlib.metadata, "entry_points", entry_points)
    with pytest.raises(NoPlanner, match=re.escape(words)):
        load(text)
    assert isinstance(load("tidy:nodes=3"), Fixed)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("goodput:foo=1", "the plan 'goodput' has no option 'foo': it takes batch, cap"),
        ("deadline:work=5", "the plan 'deadline' needs seconds=..."),
        ("budget", "the plan 'budget' needs work=... and node_seconds=..."),
    ],
)
def test_a_plan_says_which_options_it_takes_and_needs(text: str, words: str) -> None:
    with pytest.raises(NoPlanner, match=re.escape(words)):
        load(text)


def test_a_rate_is_known_when_enough_reports_agree_and_those_of_the_first_seconds_do_not_count() -> None:
    slow_first = [(0.0, 1), (1.0, 2), (2.0, 3)]
    steady = [(2.0 + second, 3 + 10 * second) for second in range(1, 7)]
    evaluations = [(0.0, 1), (8.0, 2)]
    found = measure([evaluations, [*slow_first, *steady]], 0.0)
    assert found and found.rate == pytest.approx(10.0) and found.known
    few = measure([[*slow_first, *steady[:4]]], 0.0)
    assert few and not few.known
    jumping = [(float(second), 10 * second + 5 * (second % 2)) for second in range(2, 12)]
    uneven = measure([jumping], 0.0)
    assert uneven and not uneven.known
    assert measure([slow_first], 0.0) is None
