"""What must hold of workers that keep their process, and of the steps that they have committed.

Kept like `invariants.py`, which tells it what happens. It knows which state each worker has whole from what the worker
itself has trained and received, never from what it says of it.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from .script import Worker

if TYPE_CHECKING:
    from .invariants import Checker
    from .stayers import History, ProcessGroup
    from .world import World

NOTHING = -1
"""The step of who has none."""

FREE = 1.0
"""Seconds that a worker has to leave a process group that was broken."""

SLACK = 0.01
"""Seconds that a word may take to an agent, and to be acted on."""


@dataclass(frozen=True, slots=True)
class _State:
    """Of one worker: the step that it has whole, and the rounds in which it was trained."""

    step: int = NOTHING
    history: "History" = ()


@dataclass(slots=True)
class _Seen:
    """One process group.

    Attributes:
        whole: of its members, when it stood: what the one that had most had.
        steps: by step, the state that it trained.
        trained: all of its members have had the state.
    """

    whole: _State
    steps: dict[int, _State] = field(default_factory=dict[int, _State])
    synced: dict[Worker, _State] = field(default_factory=dict[Worker, _State])


class Survivors:
    """Watches the workers of one world, where they keep their process."""

    def __init__(self, world: "World", checker: "Checker") -> None:
        self._world = world
        self._checker = checker
        self._whole: dict[Worker, _State] = {}
        self._receiving: set[Worker] = set()
        self._process_groups: dict[ProcessGroup, _Seen] = {}
        self._training: ProcessGroup | None = None  # the last that did
        self._stays: dict[Worker, float] = {}  # since when its agent may know of it
        self._asked: dict[Worker, float] = {}  # who waits for its next rank assignment, since when
        self._broken: dict[
            Worker, float
        ] = {}  # when its process group was first broken by its agent, since its last place
        self.done: dict[Worker, float] = {}  # since when
        self.lost: list[Worker] = []  # found nobody that had the state

    # -- states

    def on_claim(self, worker: Worker, group: "ProcessGroup", step: int) -> None:
        """A member of a new process group says which step it has."""
        if worker in self._receiving and step != NOTHING:
            self._violated("no worker keeps a state that was cut off", f"{worker.name} says that it has step {step}")
        elif step != self._of(worker).step:
            self._violated("a claim is what its worker has", f"{worker.name}: {step}, not {self._of(worker).step}")

    def on_stands(self, group: "ProcessGroup") -> None:
        """All have said so."""
        states = [self._of(worker) for worker in group.workers.values()]
        most = max(states, key=lambda state: state.step)
        self._process_groups[group] = _Seen(most)
        for state in states:
            if state.step == most.step and state.history != most.history:
                self._violated(
                    "workers that claim a step have the same state", f"round {group.round}: {most} and {state}"
                )
        inside = set(group.workers.values())
        for worker in self._world.workers:
            step = self._of(worker).step
            # One more than all others, the step under way, is trained again.
            ahead = step > (most.step + 1 if most.step != NOTHING else 0)
            if ahead and not worker.ended and worker not in inside and self._checker.is_member(worker.owner):
                words = f"round {group.round} goes on from step {most.step}, and {worker.name} has step {step}"
                self._violated("no committed step is lost while a worker that has it lives", words)

    def on_receiving(self, worker: Worker) -> None:
        """What it had is overwritten from now on."""
        self._whole.pop(worker, None)
        self._receiving.add(worker)

    def on_received(self, worker: Worker, step: int, history: "History") -> None:
        """It has all of what it was sent."""
        self._receiving.discard(worker)
        self._whole[worker] = _State(step, history)

    def on_synced(self, worker: Worker, group: "ProcessGroup", step: int, history: "History") -> None:
        """It goes on from that state."""
        seen, state = self._process_groups[group], _State(step, history)
        self._receiving.discard(worker)
        self._whole[worker] = seen.synced[worker] = state
        if step != max(seen.whole.step, 0) or history != seen.whole.history:
            self._violated(
                "no committed step is lost while a worker that has it lives",
                f"{worker.name} goes on from {state}, and one of its process group had {seen.whole}",
            )
        if len(seen.synced) == group.world:
            self._training = group

    def on_state_lost(self, worker: Worker) -> None:
        """It has found nobody that had the state whole."""
        self.lost.append(worker)
        group = worker.group
        mates = group.workers.values() if group else ()
        if have := [mate.name for mate in mates if self._of(mate).step != NOTHING]:
            self._violated("no committed step is lost while a worker that has it lives", f"{have} had it")

    def on_commit(self, worker: Worker, group: "ProcessGroup", step: int, history: "History") -> None:
        """It has trained one more step."""
        seen, state = self._process_groups[group], _State(step, history)
        before = self._of(worker)
        if (before.step, before.history) != (step - 1, history[:-1]):
            self._violated("a step is trained on the one before", f"{worker.name}: {before} became {state}")
        if seen.steps.setdefault(step, state) != state:
            self._violated(
                "the ranks of a process group train the same", f"{worker.name}: {state}, not {seen.steps[step]}"
            )
        last = self._training
        over = last is not None and (last.run, last.round) != (group.run, group.round)
        # Who leaves may train until it has: what it commits is nobody's any more.
        if over and self._checker.calm and not self._checker.is_leaving(worker.owner):
            self._violated("a round that is over trains no more", f"{worker.name} trains step {step}")
        self._whole[worker] = state

    def _of(self, worker: Worker) -> _State:
        return self._whole.get(worker, _State())

    # -- processes

    def on_joins(self, unready: Sequence[str]) -> None:
        """A round admits nodes for which others leave their process group; these have workers that still start."""
        if unready:
            self._violated("no worker waits for a joining node's workers", ", ".join(unready))

    def on_stays(self, worker: Worker) -> None:
        """It has said that it keeps its process."""
        self._stays[worker] = self._world.now

    def on_hung_up(self, worker: Worker) -> None:
        """Its process ends, and has closed what it had open."""
        self._stays.pop(worker, None)

    def on_done(self, worker: Worker) -> None:
        """It has trained to the end, and takes no other rank."""
        self.done[worker] = self._world.now
        self._stays.pop(worker, None)

    def on_asked(self, worker: Worker, why: str) -> None:
        """It has left its process group and wants its next rank assignment."""
        self._asked[worker] = self._world.now
        group = worker.group
        if why and group is not None and group is self._training and self._checker.has_only_grown(worker):
            self._violated("no worker loses a step for a joining node", f"{worker.name}: {why}")

    def on_break_groups(self, owner: str, pids: Collection[int]) -> None:
        """An agent breaks the process groups of these."""
        for worker in self._world.workers:
            if worker.owner == owner and worker.number in pids:
                self._broken.setdefault(worker, self._world.now)

    def on_kept(self, worker: Worker) -> None:
        """It has its next rank assignment."""
        if worker not in self._asked:
            self._violated("a worker that gets a rank has asked for it", worker.name)
        self._asked.pop(worker, None)
        self._broken.pop(worker, None)

    def on_not_kept(self, workers: Sequence[Worker]) -> None:
        """They are about to be ended, while others of their node are not."""
        now = self._world.now
        for worker in workers:
            since = self._stays.get(worker)
            if worker.ended or since is None or now - since < SLACK:
                continue
            asked, broken = self._asked.get(worker), self._broken.get(worker, now)
            if asked is not None and now - asked > SLACK:
                self._violated(
                    "a worker that is free in time keeps its process", f"{worker.name} was free {now - asked:.3f} s ago"
                )
            elif asked is None and now - broken < FREE - SLACK:
                self._violated(
                    "a worker that is free in time keeps its process", f"{worker.name} had {now - broken:.3f} s"
                )

    def on_stop(self, owner: str, workers: Sequence[Worker]) -> None:
        """All of them are about to be ended."""
        # Who has nothing yet may start again as well: its agent may not even know yet that it stays.
        staying = [each.name for each in workers if not each.ended and each in self._stays and each in self._whole]
        if staying and self._checker.takes_part(owner):
            self._violated("a worker that is free in time keeps its process", f"{', '.join(staying)} are ended")

    def _violated(self, rule: str, what: str) -> None:
        self._world.violated(rule, what)
