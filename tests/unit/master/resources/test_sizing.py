"""The rules for looking at other sizes: each holds, and each is missed where it is planted that it does not."""

from collections.abc import Callable
from dataclasses import replace

import pytest

from elastic_run.master.resources.planners import SizeChoice, SizesSeen
from elastic_run.master.resources.planners.budget import ByBudget
from elastic_run.master.resources.planners.deadline import ByDeadline
from elastic_run.master.resources.planners.goodput import ByGoodput
from elastic_run.master.resources.sizing import JobNow, Sizing

from .sized import live

SIZES = range(1, 17)


def amdahl(nodes: int) -> float:
    """Most with 8 nodes."""
    return nodes / (0.05 + 0.0008 * nodes * nodes)


def best(work: Callable[[int], float]) -> float:
    return max(map(work, SIZES))


def saturated(nodes: int) -> float:
    return min(nodes, 5.3) * 10.0


def cliff(nodes: int) -> float:
    """Falls where a second rack begins."""
    return nodes * (20.0 if nodes <= 6 else 4.0)


@pytest.mark.parametrize("work", [amdahl, saturated, cliff])
@pytest.mark.parametrize("seed", range(3))
def test_a_job_finds_the_size_that_does_most_and_keeps_the_rules(work: Callable[[int], float], seed: int) -> None:
    sizing = Sizing(ByGoodput(cap="0.2"), SIZES, 1)
    lived = live(sizing, work, seed=seed)
    assert work(lived.nodes[-1]) >= 0.95 * best(work), lived.why
    assert not lived.broken(work)
    assert sizing.lost <= 0.2 * sizing.work


class TwoAtOnce(Sizing):
    """Does not wait for the nodes of its last change."""

    def revise(self, job: JobNow) -> SizeChoice | None:
        return super().revise(replace(job, nodes=self.plan.nodes))


class BeyondItsCap(Sizing):
    """Looks at whatever is worth a look, at once, and as long as it likes."""

    def _can_pay(self, job: JobNow) -> bool:
        return True

    def _too_dear(self, job: JobNow) -> bool:
        return False


class KeepsTheLargest(ByGoodput):
    """Keeps a change that did not help."""

    def choose(self, seen: SizesSeen) -> SizeChoice:
        return SizeChoice(max(seen.rates), "the largest")


class Restless(Sizing):
    """Takes what noise says for a difference."""

    def _stay(self, rate: float, job: JobNow) -> None:
        super()._stay(rate, job)
        other = max(self._rates, key=lambda size: (size != self._home, self._rates[size]))
        if other != self._home:
            self._home = other
            self._go("moves", SizeChoice(other, "it may be better"), job)


@pytest.mark.parametrize(
    ("defect", "planner", "rule", "cap"),
    [
        (TwoAtOnce, ByGoodput, "two changes at once", 0.2),
        (BeyondItsCap, ByGoodput, "a look costs more than it may", 0.05),
        (Sizing, KeepsTheLargest, "what did not help was kept", 0.2),
        (Restless, ByGoodput, "it oscillates", 0.2),
    ],
)
def test_a_planted_defect_is_found(defect: type[Sizing], planner: type[ByGoodput], rule: str, cap: float) -> None:
    planted = live(defect(planner(cap=str(cap)), SIZES, 1), cliff, stands=2)
    assert rule in planted.broken(cliff, cap)
    assert rule not in live(Sizing(ByGoodput(cap=str(cap)), SIZES, 1), cliff, stands=2).broken(cliff, cap)


def test_changes_that_cost_much_come_late_and_their_cost_is_seen() -> None:
    cheap, dear = (live(Sizing(ByGoodput(cap="0.2"), SIZES, 1), saturated, stands=stands) for stands in (1, 15))
    assert dear.plans[1][0] > 2 * cheap.plans[1][0], "the first change shows what a change costs"
    assert "a look costs more than it may" in dear.broken(saturated, 0.05)
    assert not cheap.broken(saturated)


def test_a_script_that_reports_no_steps_keeps_its_nodes_and_is_said_to_be_unknown() -> None:
    lived = live(Sizing(ByGoodput(), SIZES, 2), amdahl, seconds=100, tells=False)
    assert set(lived.nodes) == {2}
    assert lived.why == ["2 nodes, as it has: its goodput is not known, because its script reports no steps"]


def test_a_size_without_a_place_is_given_up_and_the_job_stays_where_it_is() -> None:
    lived = live(Sizing(ByGoodput(cap="0.2"), SIZES, 1), amdahl, room=1)
    assert set(lived.nodes) == {1}
    assert "1 node: it did not come to have 2 nodes within 120 s" in lived.why


def test_a_job_that_has_other_nodes_than_planned_is_sized_from_what_it_has() -> None:
    lived = live(Sizing(ByGoodput(cap="0.2"), SIZES, 4), amdahl, room=3, seconds=200)
    assert set(lived.nodes) == {3} and "3 nodes: it did not come to have 4 nodes within 120 s" in lived.why
    assert lived.plans[-1][1] == 6, "which it may get later"


def test_a_look_that_stands_still_is_undone_when_it_has_cost_what_it_may() -> None:
    def stuck(nodes: int) -> float:
        return 20.0 if nodes == 1 else 0.0

    lived = live(Sizing(ByGoodput(cap="0.2"), range(1, 3), 1), stuck)
    assert lived.nodes[-1] == 1 and "looking longer would cost more than it may" in " ".join(lived.why)
    assert not lived.broken(stuck)


def test_a_job_that_has_changed_by_itself_is_measured_anew() -> None:
    most = [60.0]

    def work(nodes: int) -> float:
        return min(10.0 * nodes, most[0])

    def change(second: int) -> None:
        most[0] = 60.0 if second < 200 else 30.0

    lived = live(Sizing(ByGoodput(cap="0.2"), SIZES, 1), work, seconds=450, change=change)
    assert lived.nodes[199] in (6, 7) and lived.nodes[-1] in (3, 4), (lived.plans, lived.why)


def test_the_plan_is_told_again_only_where_it_is_another() -> None:
    lived = live(Sizing(ByGoodput(cap="0.2"), SIZES, 1), amdahl, seconds=400, noise=0.05)
    assert all(one != other for one, other in zip(lived.why, lived.why[1:], strict=False))
    assert len(lived.why) <= 3 * len(lived.plans)
    assert lived.why[-1].endswith("nodes did") and lived.why[-1].startswith(f"{lived.nodes[-1]} nodes")


def test_a_deadline_is_kept_with_fewer_nodes_than_goodput_would_take() -> None:
    def linear(nodes: int) -> float:
        return 10.0 * nodes

    work = 1000.0 * linear(5) * 400  # the made-up job counts thousandths of steps
    lives = {
        planner: live(Sizing(planner, SIZES, 1), linear, seconds=500)
        for planner in (ByDeadline(str(work), "500", cap="0.2"), ByGoodput(cap="0.2"))
    }
    (hurried, in_time), (_, most) = lives.items()
    done = 1000.0 * sum(map(linear, in_time.nodes))
    assert work <= done, (done / work, hurried, in_time.plans, in_time.why[-1])
    assert sum(in_time.nodes) < 0.5 * sum(most.nodes)


def test_a_deadline_that_cannot_be_kept_is_said_to_be_and_the_job_does_what_it_can() -> None:
    lived = live(Sizing(ByDeadline("1e9", "300", cap="0.2"), range(1, 5), 1), cliff)
    assert lived.nodes[-1] == 4 and lived.why[-1].endswith("no number that was measured is done in time")


def test_a_budget_is_kept_though_more_nodes_would_do_more() -> None:
    work = 1000.0 * amdahl(4) * 300
    budget = 1.15 * 4 * 300.0
    lived = live(Sizing(ByBudget(str(work), str(budget), cap="0.2"), SIZES, 1), amdahl, seconds=420)
    spent = done = 0.0
    for nodes in lived.nodes:
        if done < work:
            spent, done = spent + max(nodes, 1), done + 1000.0 * (amdahl(nodes) if nodes else 0.0)
    assert done >= work and spent <= budget, (done / work, spent / budget, lived.plans)
    assert max(lived.nodes) < 16 and any("within its budget" in why for why in lived.why)


def test_a_budget_that_does_not_suffice_is_said_to_be_too_small() -> None:
    lived = live(Sizing(ByBudget("1e9", "100", cap="0.2"), SIZES, 1), amdahl)
    assert lived.nodes[-1] <= 2 and lived.why[-1].endswith("none can do the rest of the work within the budget")
