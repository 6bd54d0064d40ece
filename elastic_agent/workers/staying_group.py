"""The process group of this node's workers that keep their process when another round comes (`handover.py` decides)."""

from collections.abc import Callable, Mapping

from ...rendezvous.ranks import Assignment
from ..inbox import Inbox
from ..local_machine import RealMachine
from ..machine.node_events import AllStay
from .handover import GroupMembers, ProcessorSample, lowest_local_rank, wait_for_late
from .started_worker import WorkerSpec
from .worker_processes import Workers


class StayingGroup:
    """Asks them to leave it, breaks it, and waits until they are free.

    Args:
        machine, half_open_seconds: see `ProcessGroups`.
        workers: of this node.
        inbox: what the agent knows.
        say: prints one line for a person.

    Attributes:
        groups: hears what they say.
    """

    def __init__(
        self,
        machine: RealMachine,
        half_open_seconds: float,
        workers: Workers,
        inbox: Inbox,
        say: Callable[[str], None],
    ) -> None:
        self._workers = workers
        self._inbox = inbox
        self._say = say
        self._short = False  # of descriptors, and has said so
        self._began: dict[int, int] = {}  # by pid: the round for which it was started
        self.groups = machine.process_groups(self._heard, lambda local: workers.pids.get(local), half_open_seconds)

    @property
    def members(self) -> GroupMembers:
        """What the living workers have said of their process group."""
        return self.groups.members(self._pids)

    @property
    def _pids(self) -> frozenset[int]:
        return frozenset(self._workers.pids.values())

    def invite(self, round: int) -> None:
        """Asks the workers to leave the process group for `round`, together with the others."""
        self.groups.plan(self._pids, round)

    def break_up(self, round: int) -> None:
        """Breaks the process group: its round is over, and `round` the current one."""
        self.groups.break_groups(self._pids, round)

    def note_start(self, round: int) -> None:
        """All workers of `round` run: those that are new were started for it."""
        self._began = {pid: self._began.get(pid, round) for pid in self._pids}

    def note_ends(self) -> None:
        """Workers have ended, or are about to: they are in no process group any more."""
        self.groups.forget_all_but(self._pids)

    def choose_first(self, assignment: Assignment, *, from_rank_0: bool) -> int:
        """The local rank that gets this node's lowest rank."""
        pids, heirs = self._workers.pids, self.members.heirs
        began = {local: self._began.get(pid, 0) for local, pid in pids.items()}
        able = [local for local, pid in pids.items() if pid in heirs]
        return lowest_local_rank(able, assignment, began, from_rank_0=from_rank_0)

    def assign(self, kept: Mapping[int, WorkerSpec], round: int, varying: frozenset[str]) -> None:
        """Gives each that is `kept`, by pid, its rank assignment: of its environment what is `varying`."""
        for pid, spec in kept.items():
            self.groups.assign(pid, round, {name: spec.env[name] for name in varying if name in spec.env})

    async def wait_until_free(self) -> float:
        """Waits until every worker that stays has left its process group, or has had the time for it; the seconds."""
        begun, samples = self._inbox.now(), tuple[ProcessorSample, ...]()
        while True:
            heard, now = self._inbox.count, self._inbox.now()
            members = self.members
            seconds = wait_for_late(members, begun, now, samples)
            if seconds is None:
                return now - begun
            if seconds:
                await self._inbox.news(heard, seconds)
                continue
            if not samples:
                those = ", ".join(f"pid {pid}" for pid in sorted(members.late))
                self._say(f"waiting for {those} to leave the process group")
            samples = (*samples[-1:], ProcessorSample(now, self._workers.used(members.late)))

    def _heard(self) -> None:
        """A worker that keeps its process has said something."""
        if self.groups.short and not self._short:
            self._short = True
            self._say(
                "too many open files: this agent cannot break the process groups of all its workers when a peer is "
                "lost, and they may wait longer: raise ulimit -n above workers here x ranks of the job first"
            )
        if len(self.members.staying) == self._inbox.state.workers.total > 0:
            self._inbox.note(AllStay())
        self._inbox.wake()
