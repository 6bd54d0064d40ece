"""A double of a cluster: machines, and a scheduler that binds pods by priority and preempts.

It does what kube-scheduler's defaults do, as far as it matters here: the highest priority first and then the oldest. A
pod that finds no place is tried again when something comes free, but not before its back-off is over: a second, two,
four, up to ten, looked at once a second. Where pods of a lower priority hold enough, the lowest and youngest of them
get SIGTERM, and what they free is held for the pod that preempted them.
"""

import asyncio
import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Literal, Protocol

from .times import Times
from .usage import Usage


class Process(Protocol):
    """What runs in a pod."""

    def terminate(self) -> None:
        """SIGTERM: it is to end in order."""
        ...

    def kill(self) -> None:
        """SIGKILL."""
        ...


LONGEST_BACKOFF = 10.0
"""Seconds; the first is one, and each is twice the last."""

State = Literal["submitted", "unschedulable", "bound", "running", "ended"]


@dataclass(eq=False, slots=True)
class Pod:
    """One pod.

    Attributes:
        owner: whose it is: a job's, or the service's.
        grace: seconds between SIGTERM and SIGKILL.
        begin: starts its process.
        changed: is called after each change of its state.
        code: the exit code of its process, once it has ended by itself.
        since: when it came into its state.
        stopping: it was told to end.
        gone: it has been deleted, and has ended.
        tried: how often no place was found for it.
        moved: something has come free since then.
        not_before: it is not tried again before.
    """

    name: str
    owner: str
    cpu: int
    priority: int
    grace: float
    begin: "Callable[[Pod], Process]"
    changed: Callable[[], None]
    created: float = 0.0
    number: int = 0
    state: State = "submitted"
    since: float = 0.0
    bound_at: float = 0.0
    machine: "Machine | None" = None
    nominated: "Machine | None" = None
    process: Process | None = None
    stopping: bool = False
    gone: bool = False
    code: int | None = None
    tried: int = 0
    moved: bool = True
    not_before: float = 0.0


@dataclass(eq=False, slots=True)
class Machine:
    """One machine. `free`: CPUs."""

    name: str
    free: int
    pods: dict[str, Pod] = field(default_factory=dict[str, Pod])
    nominated: dict[str, Pod] = field(default_factory=dict[str, Pod])

    def room(self, pod: Pod) -> int:
        """CPUs that `pod` may have of what is free: those that a preemption frees are held."""
        held = sum(each.cpu for each in self.nominated.values() if each is not pod and each.priority >= pod.priority)
        return self.free - held


class Cluster:
    """Machines and their scheduler.

    Args:
        machines: CPUs of each.
        times: how long things take.
        usage: is told how many CPUs each owner has.
    """

    def __init__(self, machines: tuple[int, ...], times: Times, usage: Usage) -> None:
        self.machines = [Machine(f"m{number}", cpus) for number, cpus in enumerate(machines)]
        self.times = times
        self.usage = usage
        self.preemptions = 0
        self._pending: dict[str, Pod] = {}
        self._loop = asyncio.get_running_loop()
        self._number = 0
        self._cycle_at: float | None = None
        self._timer: asyncio.TimerHandle | None = None

    @property
    def free(self) -> int:
        """CPUs that nobody has."""
        return sum(machine.free for machine in self.machines)

    def create(self, pod: Pod) -> None:
        """The pod is submitted."""
        self._number += 1
        pod.number, pod.created, pod.since = self._number, self._loop.time(), self._loop.time()
        self._pending[pod.name] = pod
        self._wake(self._loop.time() + self.times.schedule)
        pod.changed()

    def delete(self, pod: Pod) -> None:
        """The pod is to end in order; one without a process is gone at once."""
        if pod.gone or pod.stopping:
            return
        pod.stopping = True
        if pod.state == "ended":
            self._forget(pod)
        elif pod.state != "running":
            self._free(pod)
            self._forget(pod)
        else:
            assert pod.process is not None, "it runs"
            pod.process.terminate()
            self._loop.call_later(pod.grace, self._kill, pod)
            pod.changed()

    def ended(self, pod: Pod, code: int) -> None:
        """The pod's process has ended."""
        self._loop.call_later(self.times.end, self._ended, pod, code)

    # -- inside ---------------------------------------------------------------------------------------------------

    def _kill(self, pod: Pod) -> None:
        if pod.state == "running" and pod.process is not None:
            pod.process.kill()
            self._ended(pod, 137)

    def _ended(self, pod: Pod, code: int) -> None:
        if pod.state != "running":
            return
        self._free(pod)
        pod.state, pod.since, pod.code = "ended", self._loop.time(), code
        if pod.stopping:
            self._forget(pod)
        else:
            pod.changed()

    def _free(self, pod: Pod) -> None:
        self._pending.pop(pod.name, None)
        if pod.nominated is not None:
            pod.nominated.nominated.pop(pod.name, None)
            pod.nominated = None
        if pod.machine is not None:
            pod.machine.free += pod.cpu
            del pod.machine.pods[pod.name]
            pod.machine = None
            self.usage.held(pod.owner, -pod.cpu, self._loop.time())
            for each in self._pending.values():
                each.moved = True
            self._wake(self._loop.time() + self.times.schedule)

    def _forget(self, pod: Pod) -> None:
        pod.gone = True
        pod.changed()

    def _wake(self, at: float) -> None:
        if self._cycle_at is not None and self._cycle_at <= at:
            return
        if self._timer is not None:
            self._timer.cancel()
        self._cycle_at = at
        self._timer = self._loop.call_at(at, self._cycle)

    def _cycle(self) -> None:
        now = self._loop.time()
        self._cycle_at = self._timer = None
        in_vain: dict[int, float] = {}  # by priority: so many CPUs were not found
        moved = [each for each in self._pending.values() if each.moved]
        for pod in sorted(moved, key=lambda each: (-each.priority, each.number)):
            if pod.not_before > now:
                self._wake(math.ceil(pod.not_before))
                continue
            least = min((cpus for priority, cpus in in_vain.items() if priority >= pod.priority), default=math.inf)
            if pod.nominated is None and pod.cpu >= least:
                self._no_place(pod)
                continue
            machine = max(self.machines, key=lambda each: (each is pod.nominated, each.room(pod)))
            if machine.room(pod) < pod.cpu:
                machine = max(self.machines, key=lambda each: each.room(pod))
            if machine.room(pod) >= pod.cpu:
                self._bind(pod, machine)
                continue
            if pod.nominated is None and not self._preempt(pod):
                in_vain[pod.priority] = min(least, pod.cpu)
            self._no_place(pod)

    def _no_place(self, pod: Pod) -> None:
        pod.tried, pod.moved = pod.tried + 1, False
        pod.not_before = self._loop.time() + min(LONGEST_BACKOFF, 2.0 ** (pod.tried - 1))
        if pod.state == "submitted":
            pod.state, pod.since = "unschedulable", self._loop.time()
            pod.changed()

    def _bind(self, pod: Pod, machine: Machine) -> None:
        del self._pending[pod.name]
        if pod.nominated is not None:
            del pod.nominated.nominated[pod.name]
            pod.nominated = None
        machine.free -= pod.cpu
        machine.pods[pod.name] = pod
        pod.machine = machine
        now = self._loop.time()
        pod.state, pod.since, pod.bound_at = "bound", now, now
        self.usage.held(pod.owner, pod.cpu, now)
        self._loop.call_later(self.times.container, self._begin, pod)
        pod.changed()

    def _begin(self, pod: Pod) -> None:
        if pod.gone or pod.state != "bound":
            return
        pod.state, pod.since = "running", self._loop.time()
        pod.process = pod.begin(pod)
        pod.changed()

    def _preempt(self, pod: Pod) -> bool:
        """Takes a place away from pods of a lower priority, on the machine where that costs the least."""
        best: tuple[tuple[int, int], Machine, list[Pod]] | None = None
        for machine in self.machines:
            room = machine.room(pod) + sum(each.cpu for each in machine.pods.values() if each.stopping)
            lower = [each for each in machine.pods.values() if each.priority < pod.priority and not each.stopping]
            victims: list[Pod] = []
            for each in sorted(lower, key=lambda one: (one.priority, -one.bound_at, -one.number)):
                if room >= pod.cpu:
                    break
                victims.append(each)
                room += each.cpu
            cost = max((each.priority for each in victims), default=-1), len(victims)
            if room >= pod.cpu and (best is None or cost < best[0]):
                best = cost, machine, victims
        if best is None:
            return False
        _, machine, victims = best
        machine.nominated[pod.name] = pod
        pod.nominated = machine
        self.preemptions += len(victims)
        for each in victims:
            self.delete(each)
        return True
