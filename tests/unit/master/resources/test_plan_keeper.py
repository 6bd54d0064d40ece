"""A plan from one leadership to the next, and one whose algorithm fails."""

import asyncio
from dataclasses import replace

import pytest

from elastic_run.master.machine.controller import Controller, Terms
from elastic_run.master.machine.events import Found, Planned
from elastic_run.master.machine.memory import Memory
from elastic_run.master.resources import plan_keeper
from elastic_run.master.resources.plan_keeper import PlanKeeper
from elastic_run.master.resources.sizing import JobNow, Sizing
from elastic_run.rendezvous.keys import Keys
from elastic_run.rendezvous.round import Policy

from ....doubles.statuses import TERMS


def begun(terms: Terms) -> tuple[PlanKeeper, list[Planned]]:
    controller = Controller(Keys("job"), terms, 0.0, memory=Memory(0.0), run="run")
    controller.on(Found(None, 0, 0.0), 0.0)
    told = list[Planned]()
    return PlanKeeper(terms, controller, lambda line: None, told.append), told


PLAN = replace(TERMS, policy=Policy(2, 9, node_unit=4), plan="goodput")


def test_a_plan_begins_with_the_fewest_nodes_that_a_round_can_have() -> None:
    _, told = begun(PLAN)
    assert told == [Planned(4, "4 nodes until the steps that it makes are measured")]


def test_an_algorithm_that_fails_leaves_the_job_as_it_is_and_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(self: Sizing, job: JobNow) -> None:
        raise KeyError("no such size")

    monkeypatch.setattr(Sizing, "revise", fail)
    monkeypatch.setattr(plan_keeper, "EACH", 0.0)
    keeper, told = begun(PLAN)
    changed = list[int]()
    asyncio.run(keeper.keep_plan(lambda: 1.0, lambda: changed.append(1)))
    assert told[-1] == Planned(4, "4 nodes: the plan has failed: KeyError('no such size')") and changed == [1]
