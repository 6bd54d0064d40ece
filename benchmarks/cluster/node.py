"""A simulated node: `elastic_agent/machine/plan.py` decides for it, as for a real one; its only worker is a double.

The worker is a script that may keep its process (`docs/in-place.md`), or one that is restarted for each round.
"""

import asyncio
from collections.abc import Callable
from dataclasses import replace
from typing import Literal, Protocol

from elastic_run.elastic_agent.machine import actions, known_round, plan
from elastic_run.elastic_agent.machine.node_state import (
    KnownRound,
    LocalWorkers,
    MachineState,
    NodeKey,
    NodeState,
    Notice,
    StayingWorkers,
)
from elastic_run.elastic_agent.node.round_follower import LOOK_INSIDE_SECONDS
from elastic_run.rendezvous.header import Header
from elastic_run.rendezvous.member import Exit, Member, Report
from elastic_run.rendezvous.membership import Registration
from elastic_run.rendezvous.ranks import Assignment

from .times import Times

Worker = Literal["none", "imports", "asks", "forms", "trains", "stops"]
"""What the worker does; `asks`: it is in no process group, and waits for its rank assignment."""


class Store(Protocol):
    """What a node asks of its job's store, and of its worker's peers."""

    def put(self, node: "Node") -> None:
        """Its key is written: what it is registered with, and says of itself."""
        ...

    def delete(self, node: "Node") -> None:
        """Its key is deleted: it has left."""
        ...

    def newest(self) -> tuple[Header, int, Callable[[str], Assignment | None]] | None:
        """The header, its revision, and what its round gives an incarnation."""
        ...

    def keeps(self, header: Header) -> bool:
        """Whether the workers of the header's round say that they keep their process."""
        ...

    def invited(self, node: "Node") -> None:
        """Its worker is asked to leave its process group with the others."""
        ...

    def forms(self, node: "Node") -> None:
        """Its worker has a rank in a new process group, and waits for the others."""
        ...

    def leaves(self, node: "Node") -> None:
        """Its worker is not in its process group any more."""
        ...


class Node:
    """One agent, from its process's start to its end.

    Args:
        member: what it registers with.
        cpu: what its worker trains with.
        stays: the script keeps its process when the membership changes.
        store: its job's.
        ended: is called with its exit code.
        times: how long things take.

    Attributes:
        member: with its newest report that the store has.
        worker: what its worker does.
        round: the round that the worker belongs to.
    """

    def __init__(
        self, member: Member, cpu: int, *, stays: bool, store: Store, ended: Callable[[int], None], times: Times
    ) -> None:
        self.member = member
        self.cpu = cpu
        self.worker: Worker = "none"
        self.round = 0
        self.gone = False
        self._stays = stays
        self._store = store
        self._ended = ended
        self._times = times
        self._loop = asyncio.get_running_loop()
        self._known = KnownRound()
        self._assignment: Assignment | None = None
        self._registered: int | None = None
        self._registering = False
        self._notice: Literal["none", "leave"] = "none"
        self._notice_at = 0.0
        self._workers_gone_at: float | None = None
        self._outside = False
        self._keeps = False
        self._holding = False
        self._total = 0
        self._exits: tuple[Exit, ...] = ()
        self._writing: Report | None = None
        self._leaving = False
        self._timer: asyncio.TimerHandle | None = None
        self._soon = False
        self._later(times.agent, self._look)

    # -- what happens to it -----------------------------------------------------------------------------------------

    def terminate(self) -> None:
        """SIGTERM."""
        if self._notice == "none":
            self._notice, self._notice_at = "leave", self._loop.time()
            self.wake()

    def kill(self) -> None:
        """SIGKILL to all of it."""
        self.gone = True
        self._store.leaves(self)

    def hears(self) -> None:
        """There is another header."""
        if self.gone:
            return
        found = self._store.newest()
        if found is None:
            return
        header, revision, assignments = found
        known = known_round.take(
            self._known,
            header,
            revision,
            assignments(self.member.incarnation) if header.state == "open" else None,
            registered=self._registered,
            fresh=self._notice == "none" and self.round == 0,
            now=self._loop.time(),
        )
        if known is not None:
            self._known = known
            self._look_inside(LOOK_INSIDE_SECONDS[0])
            self.wake()

    def left_group(self) -> None:
        """The worker is out of its process group, with what it has trained."""
        if self.worker in ("forms", "trains"):
            self._become("asks")

    def stands(self) -> None:
        """The process group stands, and trains."""
        if self.worker == "forms":
            self._holding = True
            self._become("trains")

    def trained(self) -> None:
        """The worker has trained to the end."""
        self._end(code=0)

    def wake(self) -> None:
        """Looks again, at this very moment."""
        if not self._soon:
            self._soon = True
            self._loop.call_soon(self._look)

    # -- what it does -----------------------------------------------------------------------------------------------

    def _later(self, seconds: float, what: Callable[[], None]) -> asyncio.TimerHandle:
        return self._loop.call_later(seconds, what)

    def _look(self) -> None:
        self._soon = False
        if self.gone or self._leaving or self._registering:
            return
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        while self.worker != "stops":
            state, now = self._state(), self._loop.time()
            self._report(plan.report(state, now))
            action, _ = plan.act(state, now)
            match action:
                case actions.Wait(seconds):
                    if seconds is not None:
                        self._timer = self._later(seconds, self.wake)
                    return
                case actions.Register():
                    self._registering = True
                    self._later(self._times.store, self._register)
                    return
                case actions.Start(header, assignment):
                    self._begin(header.number, assignment)
                case actions.Ready():
                    self._begin(0, None)
                case actions.Invite(_, seconds):
                    self._store.invited(self)
                    self._timer = self._later(min(seconds, 1.0), self.wake)
                    return
                case actions.Break():
                    self._store.leaves(self)
                    self.left_group()
                case actions.Reform(header, assignment):
                    self._reform(header, assignment)
                case actions.Stop():
                    self._store.leaves(self)
                    self.worker = "stops"
                    self._later(self._times.stop, self._stopped)
                case actions.Leave(code):
                    self._leaving = True
                    self._later(self._times.store, lambda code=code: self._leave(code))
                    return
                case _:
                    raise AssertionError(f"{action!r} does not come in these jobs")

    def _register(self) -> None:
        if self.gone:
            return
        self._registering = False
        self._store.put(self)
        found = self._store.newest()
        self._registered = found[1] + 1 if found else 1
        self.hears()
        self.wake()

    def _begin(self, number: int, assignment: Assignment | None) -> None:
        self.round, self._assignment, self._total = number, assignment, 1
        self._exits, self._keeps, self._holding = (), False, False
        self.worker = "imports"
        self._later(self._times.script, self._imported)

    def _imported(self) -> None:
        if self.gone or self.worker != "imports":
            return
        self._keeps = self._stays
        if self._assignment is None:
            self._become("asks")
        else:
            self._become("forms")
            self._store.forms(self)

    def _reform(self, header: Header, assignment: Assignment) -> None:
        self._store.leaves(self)
        self.round, self._assignment = header.number, assignment
        if self.worker != "imports":
            self._become("forms")
            self._store.forms(self)

    def _become(self, worker: Worker) -> None:
        self.worker = worker
        self.wake()

    def _stopped(self) -> None:
        if self.worker == "stops" and not self.gone:
            self._end(code=143, stopped=True)

    def _end(self, *, code: int, stopped: bool = False) -> None:
        rank = self._assignment.first_rank if self._assignment else 0
        self._exits = (Exit(self.round, rank, 0, 1, code=code, stopped=stopped),)
        self._become("none")

    def _leave(self, code: int) -> None:
        if not self.gone:
            self.gone = True
            self._store.delete(self)
            self._ended(code)

    def _look_inside(self, pause: float) -> None:
        """Whether the workers of the round that this node is outside of keep their process."""
        header = self._known.header
        apart = header is not None and header.state == "open" and self._known.assignment is None
        if apart and not self._outside:
            self._later(pause, lambda: self._looked_inside(header, min(2 * pause, LOOK_INSIDE_SECONDS[1])))

    def _looked_inside(self, header: Header | None, pause: float) -> None:
        if self.gone or header is None or header is not self._known.header:
            return
        if self._store.keeps(header):
            self._outside = True
            self.wake()
        self._look_inside(pause)

    # -- what it says -----------------------------------------------------------------------------------------------

    def _report(self, report: Report) -> None:
        if self._registered is None or self._writing is not None:
            return
        if report != self.member.report:
            self._writing = report
            self._later(self._times.store, self._written)

    def _written(self) -> None:
        assert self._writing is not None, "it was being written"
        report, self._writing = self._writing, None
        if not self.gone:
            self.member = replace(self.member, report=report)
            self._store.put(self)
            self.wake()

    def _state(self) -> NodeState:
        now, worker = self._loop.time(), self.worker
        alive = 0 if worker == "none" else 1
        if self._notice != "none" and not alive and self._workers_gone_at is None:
            self._workers_gone_at = now
        stays = self._stays and worker in ("asks", "forms", "trains")
        registration = Registration(self.member, "", self._registered, 1, 1) if self._registered is not None else None
        return NodeState(
            notice=Notice(self._notice, 15 if self._notice != "none" else 0, self._notice_at),
            key=NodeKey(registration, told=self.member.report),
            known=replace(self._known, others_keep=self._outside),
            workers=LocalWorkers(
                round=self.round, total=self._total, alive=alive, exits=self._exits, keeps=self._keeps
            ),
            group=StayingWorkers(
                staying=int(stays),
                holding=int(self._holding and stays),
                waiting=int(stays and worker == "asks"),
                forming=int(stays and worker == "forms"),
            ),
            machine=MachineState(cleared_at=self._workers_gone_at),
        )
