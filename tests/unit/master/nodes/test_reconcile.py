"""What the node manager starts and stops, on a platform with some room: transcripts (`tests/transcripts/reconcile`)."""

import dataclasses
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import pytest
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
from elastic_run.rendezvous.base.plural import ranks

from ....sampling import examples
from ....transcripts.runner import Command, replay, transcripts

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
        self.started: list[Launch] = []

    def plan(self, *demands: Demand) -> Plan:
        return reconcile(demands, list(self.replicas.values()), self.known, self.limits, self.now)

    def look(self, *demands: Demand) -> Plan:
        plan = self.plan(*demands)
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
    def words(self) -> str:
        return f"{len(self.running)} run, {len(self.pending)} wait, {len(self.started)} started"

    @property
    def running(self) -> list[Replica]:
        return [each for each in self.replicas.values() if each.state == "running"]

    @property
    def pending(self) -> list[Replica]:
        return [each for each in self.replicas.values() if each.state == "pending"]


@transcripts("reconcile")
def test_transcript(path: Path, request: pytest.FixtureRequest) -> None:
    replay(path, ReconcileTranscript().on, request)


class ReconcileTranscript:
    """A job on a platform. A replica is called `role-index-attempt`; memory is in GiB.

    platform 3 [startup=]           one that has room for 3 replicas
    room 20                         it has room for 20; any command may have the time `at` which it comes
    plan 8:2 worker=2:1             what would be done for a job of 8, at least 2, and for that role
    look 8:2, settle 8:2 for=25     the same, and it is done; once, or each second for so long
    until 8:2 running=8             the same until so many run, or exist (replicas=)
    end -1-0 how [details]          a replica ends
    pending how [names]             how replicas that have no place, or cannot start, wait for it
    """

    def __init__(self) -> None:
        self.platform = Platform(0)

    def on(self, command: Command) -> Iterator[str]:
        """Carries out one command."""
        platform = self.platform
        platform.now = command.number("at", platform.now)
        match command.name:
            case "platform":
                room, startup = int(command.words.pop()), command.number("startup")
                limits = Limits(memory_cap=int(command.number("memory-cap") * GIB), memory_factor=1.5)
                self.platform = Platform(room, limits, startup)
            case "room":
                platform.room = int(command.words.pop())
            case "end":
                name, how, *details = command.rest()
                for each in [*platform.replicas] if name == "all" else [name]:
                    platform.end(each, END[how](*details))
            case "pending":
                how, *names = command.rest()
                for name in names or [each.name for each in platform.pending]:
                    told = {"state": "pending", "since": platform.now, "pending": PENDING[how]}
                    platform.replicas[name] = dataclasses.replace(platform.replicas[name], **told)
            case "plan":
                yield plan_words(platform.plan(*demands_of(command)))
            case "look":
                yield f"{plan_words(platform.look(*demands_of(command)))}; {platform.words}"
            case "settle":
                seconds = command.number("for")
                yield f"{plan_words(platform.settle(*demands_of(command), seconds=seconds))}; {platform.words}"
            case "until":
                running, replicas, began = command.count("running"), command.count("replicas"), platform.now
                demands = demands_of(command)
                while platform.now < began + 600 and (
                    len(platform.running) < running or len(platform.replicas) < replicas
                ):
                    platform.look(*demands)
                    platform.now += 1.0
                yield f"after {platform.now - began:g} s"
            case name:
                raise ValueError(name)


PENDING = {
    "submitted": Submitted(),
    "starting": Starting(),
    "promised": Promised(),
    "unstartable": CannotStart("ErrImagePull: not found"),
    "root": CannotStart("it would be root", never=True),
}
END: Mapping[str, Callable[..., End]] = {
    "exited": lambda code: Exited(int(code)),
    "out-of-memory": lambda gib: OutOfMemory(int(float(gib) * GIB)),
    "preempted": lambda: Preempted("for another"),
    "lost": lambda: MachineLost("no word of it"),
}


def demands_of(command: Command) -> list[Demand]:
    """`8:2` and `worker=2:1`: how many, and the least."""
    told = [("", word) for word in command.rest()] + [(role, command.take(role)) for role in list(command.options)]
    return [Demand(role, *map(int, numbers.split(":"))) for role, numbers in told]


def plan_words(plan: Plan) -> str:
    """All of it, in one line."""
    starts: dict[str, list[int]] = {}
    for each in plan.start:
        counted = f", {each.counted} counted" if each.counted else ""
        memory = f", {each.raised / GIB:g} GiB" if each.raised else ""
        starts.setdefault(f"attempt {each.attempt}{counted}{memory}", []).append(each.index)
    words = [f"start {ranks(indexes).split(maxsplit=1)[1]} ({how})" for how, indexes in starts.items()]
    words += [f"stop {' '.join(plan.stop)}"] if plan.stop else []
    notes: dict[str, list[str]] = {}
    for note in plan.notes:
        notes.setdefault(f"{note.reason.code}: {note.reason}", []).append(note.replica)
    words += [f"{' '.join(names)}: {why}" for why, names in notes.items()]
    words += [f"look at {plan.look:g}"] if plan.look is not None else []
    words += [f"hopeless: {plan.hopeless.replica}: {plan.hopeless.reason}"] if plan.hopeless else []
    words += [f"finished: {plan.finished.replica}"] if plan.finished else []
    return "; ".join(words) or "do nothing"


def test_the_verdicts() -> None:
    one = Replica("a-0", "", 0, 0, 0, "ended", 5.0, memory=GIB)
    limits = Limits()
    for end, expected in {
        Exited(0): Finished(),
        Exited(1): Again(counted=True, not_before=5.0 + limits.pause),
        Exited(2): GivenUp(),
        Exited(143): Again(counted=False, not_before=5.0),
        # Of a container of its user's, whose codes say nothing.
        Exited(0, container="prep"): Again(counted=True, not_before=5.0 + limits.pause),
        Exited(2, container="prep"): Again(counted=True, not_before=5.0 + limits.pause),
        Exited(143, container="prep"): Again(counted=True, not_before=5.0 + limits.pause),
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


@settings(max_examples=examples(150, 15), deadline=None)
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
