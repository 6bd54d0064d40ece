"""The process group of workers that keep their process: asked, broken, awaited, and given their next ranks."""

import asyncio
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

from elastic_run.elastic_agent.inbox import Inbox
from elastic_run.elastic_agent.machine.node_events import WorkersBegin
from elastic_run.elastic_agent.machine.node_state import NodeSettings
from elastic_run.elastic_agent.workers.handover import (
    COMPUTES_WITHIN,
    FORMING_SECONDS,
    FREE_SECONDS,
    GroupMembers,
)
from elastic_run.elastic_agent.workers.started_worker import WorkerSpec
from elastic_run.elastic_agent.workers.staying_group import StayingGroup
from elastic_run.rendezvous.ranks import Assignment

from ....doubles.virtual_loop import VirtualLoop


class Scene:
    """Two workers with the pids 10 and 11, and a clock that the test sets."""

    def __init__(self, **members: Any) -> None:
        self.now, self.said, self.calls, self.pids = 0.0, list[str](), list[tuple[object, ...]](), {0: 10, 1: 11}
        self.said_by = GroupMembers({10: 0.0, 11: 0.0}, **members)
        self.short = False
        self.changed: Callable[[], None] = lambda: None
        self.inbox = Inbox(NodeSettings(), lambda: self.now)
        workers: Any = SimpleNamespace(pids=self.pids, used=lambda _: 0.0)
        machine: Any = SimpleNamespace(process_groups=self._listen)
        self.group = StayingGroup(machine, 0.0, workers, self.inbox, self.said.append)

    def _listen(self, changed: Callable[[], None], pid_of: Callable[[int], int | None], _: float) -> "Scene":
        assert (pid_of(1), pid_of(2)) == (11, None)
        self.changed = changed
        return self

    def members(self, pids: frozenset[int]) -> GroupMembers:
        assert pids == set(self.pids.values())
        return self.said_by

    def __getattr__(self, name: str) -> Any:
        return lambda *given: self.calls.append((name, *given))


def spec(**environment: str) -> WorkerSpec:
    return WorkerSpec(2, 0, 0, (), environment)


def test_who_is_to_leave_is_asked_or_freed_together_with_all_others() -> None:
    scene = Scene()
    scene.group.invite(3)
    scene.group.break_up(3)
    scene.group.note_ends()
    both = frozenset((10, 11))
    assert scene.calls == [("plan", both, 3), ("break_groups", both, 3), ("forget_all_but", both)]


def test_a_kept_worker_is_told_of_its_environment_what_differs_by_rank() -> None:
    scene = Scene()
    scene.group.assign({10: spec(RANK="1", PATH="/")}, 4, frozenset(("RANK", "ROLE")))
    assert scene.calls == [("assign", 10, 4, {"RANK": "1"})]


def test_the_oldest_that_has_the_state_gets_the_lowest_rank() -> None:
    both, first = frozenset((10, 11)), Assignment(9, "a", "", 0, 1, 0, 2, 2, 0, 2)
    scene = Scene(waiting=both, holding=both)
    scene.pids[0] = 9
    scene.group.note_start(1)
    scene.pids[0] = 10  # in its place, for a later round
    scene.group.note_start(2)
    assert scene.group.choose_first(first, from_rank_0=True) == 1
    assert scene.group.choose_first(first, from_rank_0=False) == 0


def wait_until_free(**members: Any) -> tuple[float, list[str]]:
    """Seconds on a clock that jumps, and what was said."""
    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        scene = Scene(**members)
        scene.inbox.now = runner.get_loop().time
        return runner.run(scene.group.wait_until_free()), scene.said


def test_nobody_waits_for_workers_that_are_free_or_have_had_their_time() -> None:
    both = frozenset((10, 11))
    assert wait_until_free(waiting=both) == (0.0, [])
    assert wait_until_free(waiting=frozenset((10,)), holding=both) == (FREE_SECONDS, [])
    assert wait_until_free(forming=both) == (FORMING_SECONDS, [])


def test_who_has_not_computed_since_the_last_look_is_named_and_given_up() -> None:
    line = "waiting for pid 11 to leave the process group"
    assert wait_until_free(waiting=frozenset((10,))) == (FREE_SECONDS + COMPUTES_WITHIN, [line])


def test_the_node_hears_when_all_its_workers_stay_and_once_that_files_are_short() -> None:
    scene = Scene()
    scene.inbox.note(WorkersBegin(1, "default", 2))
    scene.short = True
    scene.changed()
    scene.changed()
    assert scene.inbox.state.workers.keeps and scene.inbox.count == 2
    assert len(scene.said) == 1 and scene.said[0].startswith("too many open files")
