"""The experiments of `benchmarks/cluster/`, small: real decisions on a virtual clock."""

import asyncio
import dataclasses
import os
import random
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks.cluster import beside_a_service, bounds, clock, day, real, two_jobs
from benchmarks.cluster.areas import draw
from benchmarks.cluster.beside_a_service import Replica
from benchmarks.cluster.job import Job, Story, Wants
from benchmarks.cluster.laws import TUNED
from benchmarks.cluster.platform import Priority
from benchmarks.cluster.scheduler import Cluster, Pod
from benchmarks.cluster.sized_job import simulate
from benchmarks.cluster.times import Times
from benchmarks.cluster.usage import Curve, Usage

ROOT = Path(__file__).parents[2]
TENTH = (8,) * 4
"""Machines of 32 CPUs in all: a tenth of the experiment's."""


@pytest.fixture(scope="module")
def two() -> list[two_jobs.Ran]:
    return [two_jobs.ran(case, TENTH) for case in two_jobs.cases(0.1)]


def test_two_jobs_take_little_longer_than_they_must(two: list[two_jobs.Ran]) -> None:
    for each in two:
        assert each.case.bound < each.seconds < each.case.bound + 22, each.case.name


def test_an_elastic_job_does_not_wait_for_another_to_end(two: list[two_jobs.Ran]) -> None:
    gang, *elastic = two
    assert gang.stories[1].wait > 650
    assert all(each.stories[1].wait < 1 for each in elastic[:2])
    # Where pods have to give way, the scheduler itself waits a second before it tries again.
    assert elastic[2].stories[1].wait < 2.5


def test_the_job_above_gets_its_places_and_the_other_goes_on_with_fewer(two: list[two_jobs.Ran]) -> None:
    above = two[2]
    has = {name: above.usage.has[name].at(400.0) for name in ("first", "second")}
    assert has == {"first": 14, "second": 18} and above.preemptions == 4
    assert above.stories[0].rounds == 2, "those that gave way left in one round"


def test_nodes_that_came_together_join_in_one_round(two: list[two_jobs.Ran]) -> None:
    assert [each.stories[1].rounds for each in two] == [1, 2, 1, 2]


def test_no_more_is_trained_than_there_are_cpus_for(two: list[two_jobs.Ran]) -> None:
    for each in two:
        works = each.usage.works
        for moment in {moment for curve in works.values() for moment in curve.times}:
            for name, curve in works.items():
                assert curve.at(moment) <= each.usage.has[name].at(moment) <= 32, (each.case.name, name, moment)
        trained = sum(curve.total(0.0, each.seconds) for curve in works.values())
        assert trained == pytest.approx(each.case.first.work + each.case.second.work)


def test_the_pictures_show_every_case(two: list[two_jobs.Ran]) -> None:
    picture = draw("Two jobs", two_jobs.panels(two), "simulated")
    assert all(each.case.name in picture for each in two) and picture.count('<path d="M60') > 8


def test_beside_a_service_the_cluster_is_full_and_the_service_never_waits() -> None:
    found = beside_a_service.ran((8,) * 4, minutes=10)
    assert found.held > 0.95 and found.trained > 0.9
    assert 0 < found.longest < beside_a_service.GRACE
    assert found.preemptions > 5 and found.story.rounds > 10
    served = found.usage.has[beside_a_service.SERVICE]
    demand = beside_a_service.traffic(32)
    for period in range(2, 39):
        moment = period * beside_a_service.PERIOD + beside_a_service.GRACE / 4
        assert served.at(moment) == demand(period * beside_a_service.PERIOD), moment


def test_a_day_of_jobs_trains_nearly_all_that_can_be_trained() -> None:
    found = day.ran(60, (16,) * 4, hours=2.0, seed=3)
    assert 0.9 < found.share < 1.0
    assert found.trained < found.held <= found.cpus * found.seconds
    assert found.ended > 40 and found.preemptions > 10
    assert max(found.waits["high"]) < 5.0


@pytest.mark.parametrize("kind", TUNED)
def test_a_job_with_a_plan_finds_the_number_of_nodes_that_does_most(kind: str) -> None:
    law = TUNED[kind](random.Random(f"{kind} 1"))
    found = simulate(law, seed=1, plan="goodput", most=16, seconds=400.0)
    assert found.share >= 0.95 and found.spent < 0.05 and found.reached, found


def test_a_job_whose_script_does_not_stay_restarts_its_workers_for_each_round() -> None:
    async def life() -> Story:
        cluster = Cluster((4,), Times(), Usage())
        job = Job(Wants("plain", 0.0, 400.0, 1, 4, stays=False), cluster)
        other = Job(Wants("other", 30.0, 40.0, 1, 2, priority=Priority(1)), cluster)
        stories = await asyncio.gather(job.run(), other.run())
        return stories[0]

    story = clock.run(life)
    assert story.rounds == 3, "all; two fewer; all again"
    assert story.stood > 2 * Times().script, "each time the script starts"


def test_a_pod_that_does_not_end_in_its_grace_is_killed_and_the_others_go_on() -> None:
    async def life() -> Story:
        times = dataclasses.replace(Times(), stop=1000.0)
        cluster = Cluster((4,), times, Usage())
        job = Job(Wants("slow", 0.0, 200.0, 1, 4), cluster)
        other = Job(Wants("other", 30.0, 40.0, 1, 2, priority=Priority(1)), cluster)
        done = [asyncio.create_task(each.run()) for each in (job, other)]
        await asyncio.sleep(80.0)
        story = job.story
        assert cluster.usage.has["other"].at(70.0) == 2
        assert cluster.usage.works["slow"].at(70.0) == 2
        for task in done:
            task.cancel()
        await asyncio.gather(*done, return_exceptions=True)
        return story

    assert clock.run(life).rounds == 2


def test_a_pod_that_is_tried_in_vain_waits_longer_each_time_and_a_new_one_does_not() -> None:
    async def life() -> list[float]:
        cluster = Cluster((2,), Times(), Usage())
        loop = asyncio.get_running_loop()

        def pod(name: str, cpu: int) -> Pod:
            return Pod(name, name, cpu, 0, 1.0, lambda pod: Replica(lambda: cluster.ended(pod, 0)), lambda: None)

        held, free, large = pod("held", 1), pod("free 0", 1), pod("large", 2)
        for each in (held, free, large):
            cluster.create(each)
        for number in range(1, 5):
            await asyncio.sleep(3.0)
            cluster.delete(free)
            await asyncio.sleep(1.0)
            free = pod(f"free {number}", 1)
            cluster.create(free)
            await asyncio.sleep(1.0)
            assert free.bound_at > loop.time() - 1.0, "a new one is tried at once"
        began = loop.time()
        cluster.delete(held)
        cluster.delete(free)
        await asyncio.sleep(15.0)
        return [float(large.tried), large.bound_at - began]

    tried, waited = clock.run(life)
    assert 3 <= tried <= 5 and 1 < waited <= 11


def test_the_pattern_that_is_run_for_real_is_simulated_with_the_times_of_that_run() -> None:
    quick = real.simulated(Times(script=0.02), (0.0, real.SECOND_AT))
    slow = real.simulated(Times(script=2.0), (0.0, real.SECOND_AT))
    assert 25 < quick.done["first"] < 32 < 45 < quick.done["second"] < slow.done["second"]
    assert slow.goodput < quick.goodput < 1
    (_, *of_truth), (_, *of_model), (_, *off) = real.rows(quick, quick)
    assert of_truth == of_model and set(off) == {"+0.0%"}


def test_the_times_of_a_real_run_are_read_from_its_pods_and_records(tmp_path: Path) -> None:
    watcher = real.Watcher(None)
    for uid, name in enumerate(("first-0", "first-1", "second-0")):
        start = 100.0 if uid < 2 else 120.0
        states = {"created": start + 1, "bound": start + 1.1, "running": start + 1.5, "ended": start + 30}
        watcher.seen[str(uid)] = real.Watched(name, "node", states)
    watcher.seen["m"] = real.Watched("first-m", "master", {"created": 100.0, "bound": 100.0, "running": 100.0})
    found: dict[str, list[real.Step]] = {}
    for name, begin in (("first", 102.5), ("second", 123.5)):
        lines: list[str] = []
        for born, world in ((begin, 2), (begin + 10.5, 4)):
            lines += [f"{born} 0 {world} {born + record / 10}" for record in range(1, 100)]
        (tmp_path / "journal").write_text("\n".join(lines) + "\n")
        found[name] = real.steps(tmp_path)
    times = real.times_of(watcher, found, {"first": 100.0, "second": 120.0})
    assert (times.master, times.schedule, times.container) == pytest.approx((1.0, 0.1, 0.4))
    assert times.script == pytest.approx(0.53, abs=0.05), "from the last record to the next start"
    assert watcher.held("first-", 100.0, 50.0).at(20.0) == 2 and watcher.held("first-", 100.0, 50.0).at(31.0) == 0


def test_the_bound_of_a_day_is_what_was_submitted_and_what_the_cpus_can_do() -> None:
    early, late = Wants("early", 0.0, 100.0, 1, 1), Wants("late", 50.0, 1000.0, 1, 1)
    assert bounds.most_trained([early], 10, 60.0) == 100.0
    assert bounds.most_trained([early, late], 10, 60.0) == 200.0
    assert bounds.most_trained([late], 10, 60.0) == 100.0
    assert bounds.most_trained([early, late], 1, 60.0) == 60.0


def test_the_bounds_of_two_jobs_are_those_that_were_published() -> None:
    assert [round(case.bound) for case in two_jobs.cases()] == [1300, 1010, 950, 711]


def test_time_that_nobody_waits_for_does_not_pass_for_ever() -> None:
    async def waits() -> None:
        await asyncio.Event().wait()

    with pytest.raises(clock.StoodStill):
        clock.run(waits)


def test_a_curve_knows_its_area() -> None:
    curve = Curve()
    curve.add(2, 1.0)
    curve.add(3, 3.0)
    assert (curve.at(0.5), curve.at(1.0), curve.at(9.0)) == (0.0, 2.0, 5.0)
    assert curve.total(0.0, 4.0) == 9.0 and curve.total(2.0, 3.5) == 4.5


def test_one_seed_has_one_history_whatever_python_hashes() -> None:
    program = "from benchmarks.cluster import day; print(day.row(day.ran(20, (8,) * 4, hours=0.5)))"
    said = {
        subprocess.run(
            [sys.executable, "-c", program],
            capture_output=True,
            text=True,
            check=True,
            cwd=ROOT,
            env=os.environ | {"PYTHONHASHSEED": seed},
        ).stdout
        for seed in ("1", "2")
    }
    assert len(said) == 1, said
