"""What the node manager starts and stops, on a platform that has as much room as a test says."""

import dataclasses

from hypothesis import given, settings
from hypothesis import strategies as st

from elastic_run.master.nodes.reconcile import PATIENCE, Demand, Plan, Room, reconcile
from elastic_run.master.nodes.relaunch import Again, Finished, GivenUp, Limits, judge
from elastic_run.master.nodes.replica import (
    CannotStart,
    End,
    Exited,
    Launch,
    MachineLost,
    NeverStarted,
    OutOfMemory,
    Preempted,
    Promised,
    Replica,
    Starting,
    Submitted,
    Unschedulable,
)

GIB = 1 << 30


class Platform:
    """Has room for `room` replicas, and gives it to the oldest that wait. Time is in seconds.

    One with a place runs `startup` seconds later.
    """

    def __init__(self, room: int, limits: Limits = Limits(), startup: float = 0.0) -> None:  # noqa: B008  a frozen value
        self.room = room
        self.startup = startup
        self.limits = limits
        self.now = 0.0
        self.replicas: dict[str, Replica] = {}
        self.known: dict[str, Room] = {}
        self.most_pending = 0
        self.started: list[Launch] = []

    def look(self, *demands: Demand) -> Plan:
        plan = reconcile(demands, list(self.replicas.values()), self.known, self.limits, self.now)
        self.known = dict(plan.room)
        for name in plan.stop:
            del self.replicas[name]
        for launch in plan.start:
            name = f"{launch.role}-{launch.index}-{launch.attempt}"
            assert name not in self.replicas, "each attempt has a name of its own"
            self.started.append(launch)
            self.replicas[name] = Replica(
                name,
                launch.role,
                launch.index,
                launch.attempt,
                launch.counted,
                "pending",
                self.now,
                memory=launch.raised or GIB,
                raised=launch.raised,
                pending=Submitted(),
            )
        self._schedule()
        self.most_pending = max(self.most_pending, len(self.pending))
        return plan

    def settle(self, *demands: Demand, seconds: float = 300.0) -> Plan:
        """Looks again and again, for so many seconds."""
        end = self.now + seconds
        while True:
            plan = self.look(*demands)
            if self.now >= end:
                return plan
            self.now = min(end, self.now + 1.0)

    def end(self, name: str, how: End) -> None:
        found = self.replicas[name]
        self.replicas[name] = dataclasses.replace(found, state="ended", since=self.now, pending=None, end=how)

    def _schedule(self) -> None:
        left = self.room - len(self.running) - sum(isinstance(each.pending, Starting) for each in self.pending)
        for name, each in sorted(self.replicas.items(), key=lambda item: (item[1].since, item[1].index)):
            match each.pending:
                case Submitted() | Unschedulable() if left > 0:
                    left -= 1
                    self.replicas[name] = dataclasses.replace(each, since=self.now, pending=Starting())
                case Submitted():
                    self.replicas[name] = dataclasses.replace(each, pending=Unschedulable("0/3 machines are free"))
                case _:
                    pass
        for name, each in self.replicas.items():
            if isinstance(each.pending, Starting) and each.since + self.startup <= self.now:
                self.replicas[name] = dataclasses.replace(each, state="running", since=self.now, pending=None)

    @property
    def running(self) -> list[Replica]:
        return [each for each in self.replicas.values() if each.state == "running"]

    @property
    def pending(self) -> list[Replica]:
        return [each for each in self.replicas.values() if each.state == "pending"]


def test_with_room_everything_is_asked_for_at_once() -> None:
    platform = Platform(room=500)
    assert len(platform.look(Demand("", 500, 2)).start) == 500
    assert len(platform.running) == 500


def test_five_hundred_that_are_lost_at_once_are_replaced_at_once() -> None:
    platform = Platform(room=500)
    platform.settle(Demand("", 500, 2), seconds=5)
    for name in [*platform.replicas]:
        platform.end(name, MachineLost("no word of it"))
    plan = platform.look(Demand("", 500, 2))
    assert len(plan.start) == 500 and {launch.attempt for launch in plan.start} == {1}
    assert {launch.index for launch in plan.start} == set(range(500))


def test_what_stays_without_a_place_is_withdrawn_but_for_one() -> None:
    platform = Platform(room=3)
    plan = platform.settle(Demand("", 8, 2), seconds=PATIENCE + 5)
    assert len(platform.running) == 3 and len(platform.pending) == 1
    (note,) = plan.notes
    assert note.reason.code == "Unschedulable" and "0/3 machines are free" in str(note.reason)


def test_it_grows_into_room_that_comes_and_doubles_what_it_asks_for() -> None:
    platform = Platform(room=3)
    platform.settle(Demand("", 20, 2), seconds=PATIENCE + 5)
    platform.most_pending = 0
    platform.room = 20
    began = platform.now
    while len(platform.running) < 20:
        platform.look(Demand("", 20, 2))
        platform.now += 1.0
    assert platform.now - began < 10


def test_while_it_grows_nobody_waits_for_those_with_a_place_to_run() -> None:
    platform = Platform(room=3, startup=60.0)
    platform.settle(Demand("", 300, 2), seconds=100)
    platform.room = 300
    began = platform.now
    while len(platform.replicas) < 300:
        platform.look(Demand("", 300, 2))
        platform.now += 1.0
    assert platform.now - began < 12, "nine times twice as many, and not nine times a start"
    platform.settle(Demand("", 300, 2), seconds=100)
    assert len(platform.running) == 300


def test_before_the_platform_has_looked_for_a_place_no_more_are_asked_for() -> None:
    platform = Platform(room=3)
    platform.settle(Demand("", 20, 2), seconds=PATIENCE + 5)
    (probe,) = platform.pending
    found = [each for each in platform.replicas.values() if each is not probe]
    for pending, asked in ((Submitted(), 0), (Starting(), 2)):
        now = [*found, dataclasses.replace(probe, pending=pending)]
        plan = reconcile([Demand("", 20, 2)], now, platform.known, Limits(), platform.now)
        assert len(plan.start) == asked


def test_a_replica_with_a_promised_place_is_not_withdrawn_while_others_leave_it() -> None:
    platform = Platform(room=3)
    platform.look(Demand("", 8, 2))
    for name, each in platform.replicas.items():
        if each.state == "pending":
            platform.replicas[name] = dataclasses.replace(each, pending=Promised())
    found = list(platform.replicas.values())
    plan = reconcile([Demand("", 8, 2)], found, platform.known, Limits(), platform.now + 10 * PATIENCE)
    assert not plan.stop and not plan.start


def test_the_minimum_waits_for_places_as_long_as_it_takes() -> None:
    platform = Platform(room=0)
    platform.settle(Demand("", 8, 4), seconds=3600)
    assert len(platform.pending) == 4
    assert len(platform.started) == 8  # each was made once


def test_one_that_cannot_start_does_not_keep_the_others_from_it() -> None:
    platform = Platform(room=8)
    platform.look(Demand("", 4, 2))
    name = next(iter(platform.replicas))
    stuck = dataclasses.replace(
        platform.replicas[name], state="pending", pending=CannotStart("ImagePullBackOff: no such image")
    )
    platform.replicas[name] = stuck
    plan = reconcile([Demand("", 4, 2)], list(platform.replicas.values()), {}, Limits(), 9.0)
    assert not plan.start and not plan.stop
    assert [note.reason.code for note in plan.notes] == ["CannotStart"]


def test_the_highest_indexes_are_stopped_and_who_waits_before_who_runs() -> None:
    platform = Platform(room=4)
    platform.look(Demand("", 6, 1))
    plan = platform.look(Demand("", 3, 1))
    assert sorted(plan.stop) == ["-3-0", "-4-0", "-5-0"]
    assert sorted(each.index for each in platform.running) == [0, 1, 2]


def test_a_role_that_is_not_wanted_any_more_is_stopped() -> None:
    platform = Platform(room=4)
    platform.look(Demand("ps", 1, 1), Demand("worker", 2, 1))
    assert platform.look(Demand("worker", 2, 1)).stop == ("ps-0-0",)


def test_a_finished_job_is_not_started_again() -> None:
    platform = Platform(room=2)
    platform.look(Demand("", 2, 1))
    for name in [*platform.replicas]:
        platform.end(name, Exited(0))
    assert not platform.settle(Demand("", 2, 1), seconds=600).start


def test_an_index_that_fails_three_times_is_given_up_with_its_reason() -> None:
    platform = Platform(room=2)
    starts = 0
    for _ in range(600):
        plan = platform.look(Demand("", 1, 1))
        starts += len(plan.start)
        for each in platform.running:
            platform.end(each.name, Exited(1))
        platform.now += 1.0
        if plan.hopeless:
            break
    assert starts == 3
    assert plan.hopeless is not None and str(plan.hopeless.reason) == "its agent ended with exit code 1"


def test_the_job_goes_on_without_an_index_that_was_given_up() -> None:
    platform = Platform(room=3)
    platform.look(Demand("", 3, 2))
    platform.end("-1-0", Exited(2))
    plan = platform.settle(Demand("", 3, 2), seconds=60)
    assert plan.hopeless is None and len(platform.running) == 2
    assert [note.replica for note in plan.notes] == ["-1-0"]


def test_more_memory_is_given_up_to_the_cap_and_to_all_that_follow() -> None:
    limits = Limits(memory_cap=2 * GIB, memory_factor=1.5)
    platform = Platform(room=3, limits=limits)
    platform.look(Demand("", 2, 1))
    platform.end("-0-0", OutOfMemory(GIB))
    (again,) = platform.look(Demand("", 2, 1)).start
    assert again.raised == int(1.5 * GIB) and again.counted == 0
    platform.end("-0-1", OutOfMemory(int(1.5 * GIB)))
    assert platform.look(Demand("", 2, 1)).start[0].raised == 2 * GIB
    platform.end("-1-0", Preempted("for another"))
    assert platform.look(Demand("", 2, 1)).start[0].raised == 2 * GIB
    platform.end("-0-2", OutOfMemory(2 * GIB))
    platform.look(Demand("", 2, 1))
    platform.now += limits.pause + 1
    assert platform.look(Demand("", 2, 1)).start[0].counted == 1


def test_the_verdicts() -> None:
    one = Replica("a-0", "", 0, 0, 0, "ended", 5.0, memory=GIB)
    limits = Limits()
    for end, expected in {
        Exited(0): Finished(),
        Exited(1): Again(counted=True, not_before=5.0 + limits.pause),
        Exited(2): GivenUp(),
        Exited(143): Again(counted=False, not_before=5.0),
        NeverStarted("no such program"): GivenUp(),
        Preempted("by another"): Again(counted=False, not_before=5.0),
        MachineLost("silent"): Again(counted=False, not_before=5.0),
        OutOfMemory(GIB): Again(counted=True, not_before=5.0 + limits.pause),
    }.items():
        assert judge(one, end, limits) == expected, end
    spent = dataclasses.replace(one, counted=limits.counted - 1)
    assert judge(spent, Exited(1), limits) == GivenUp()
    assert isinstance(judge(spent, Preempted("by another"), limits), Again)


Step = st.tuples(st.sampled_from(["room", "preempt", "lose", "scale"]), st.integers(0, 12), st.integers(1, 40))


@settings(max_examples=150, deadline=None)
@given(st.integers(0, 12), st.lists(Step, max_size=12))
def test_whatever_happens_it_comes_to_what_there_is_room_for(room: int, steps: list[tuple[str, int, int]]) -> None:
    """After every history, with some quiet: as many run as there is room for, and at most one more waits in vain."""
    platform, least, count = Platform(room), 2, 10
    for what, number, seconds in steps:
        running = sorted(platform.running, key=lambda each: each.index)
        match what:
            case "room":
                platform.room = number
                for each in running[number:]:
                    platform.end(each.name, Preempted("the cluster has less room"))
            case "scale":
                count = max(least, number)
            case _ if running:
                how = Preempted("for another") if what == "preempt" else MachineLost("silent")
                platform.end(running[number % len(running)].name, how)
            case _:
                pass
        platform.settle(Demand("", count, least), seconds=float(seconds))
    platform.settle(Demand("", count, least), seconds=20 * PATIENCE)
    assert len(platform.running) == min(platform.room, count)
    waiting = len(platform.pending)
    expected = max(least - platform.room, 1 if platform.room < count else 0)
    assert waiting == expected, (platform.room, count)
    before = len(platform.started)
    platform.settle(Demand("", count, least), seconds=10 * PATIENCE)
    assert len(platform.started) == before, "where nothing changes, nothing is made"


def stuck(index: int, since: float = 0.0) -> Replica:
    return Replica(f"w-{index}", "", index, 0, 0, "pending", since, pending=CannotStart("ErrImagePull: not found"))


def test_a_job_whose_replicas_can_never_start_cannot_have_them() -> None:
    limits, demand = Limits(cannot_start=600.0), Demand("", 3, 2)
    found = reconcile((demand,), [stuck(0), stuck(1), stuck(2)], {}, limits, 599.0)
    assert found.hopeless is None and found.look == 600.0 and not found.start and not found.stop
    found = reconcile((demand,), [stuck(0), stuck(1), stuck(2)], found.room, limits, 600.0)
    assert found.hopeless is not None and "not found" in str(found.hopeless.reason)
    one = [stuck(0, 500.0), stuck(1, 500.0), stuck(2)]
    assert reconcile((demand,), one, {}, limits, 600.0).hopeless is None, "two are enough"


def test_a_replica_that_cannot_start_waits_where_another_of_its_role_has_run() -> None:
    """A registry that is away for an hour ends no job that has run for days."""
    limits, demand = Limits(cannot_start=600.0), Demand("", 2, 2)
    ran = Replica("w-0", "", 0, 0, 0, "running", 0.0)
    found = reconcile((demand,), [ran, stuck(1)], {}, limits, 10_000.0)
    assert found.hopeless is None
    found = reconcile((demand,), [stuck(0), stuck(1)], found.room, limits, 20_000.0)
    assert found.hopeless is None, "it is remembered"
