"""A simulated script whose workers keep their process: they train in step, and form one process group after the other.

A worker here does what a PyTorch script does under `adapters/torch/state.py`: it takes its place from its agent,
meets the others, forms the process group, says which step it has committed, gets the job's state from who has it or
brings it to others, and trains. Where its process group breaks it undoes the step that was under way and asks for its
next rank assignment; where another round is wanted, all leave after the same step. Who has the state, and who gets it
from whom, is decided by `adapters/client/commits.py` itself; what is said to the agent, and heard, is
`adapters/client/rounds.py`.

The *state* of a worker is its step, and for each step the round in which it was trained. So two workers that have
trained the same step apart from each other have different states, as real ones would.
"""

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal, cast

from elastic_run.adapters.client.commits import NOTHING, Claim, StateLost, beginning, lost, transfers
from elastic_run.adapters.client.context import AGENT
from elastic_run.adapters.client.rounds import News, Rounds, Word
from elastic_run.rendezvous.wire.frame import take_frames
from elastic_run.rendezvous.wire.values import decode

from .process_groups import Link, WorkerEnd
from .schedule import Shape
from .script import COUPLED, Group, Script, Worker

if TYPE_CHECKING:
    from .world import World

FORM = 600.0
"""Seconds that it waits for all ranks to come to a new process group (`adapters/torch/process_group.py`)."""

CONNECT = 5.0
"""Seconds after which the groups that do not connect give up (`adapters/torch/process_group.py`)."""

SITS = 0.02
"""How many steps hold a call that nobody can break off, of up to SITTING seconds."""

SITTING = (0.3, 4.0)

FIRST, LAST = 0.0001, (0.0005, 0.003, 0.02)
"""Seconds until a collective that is done is so for each rank."""

BRINGS = (0.002, 0.05, 0.5)
"""Seconds that the state is on its way from one rank to another."""

History = tuple[int, ...]
"""Of each step, the round in which it was trained."""


class Member(Rounds):
    """The real one, in a process that must not wait: `ask` is `next` up to there."""

    def __init__(self, environment: Mapping[str, str], line: WorkerEnd) -> None:
        super().__init__({name: value for name, value in environment.items() if name != AGENT})
        self._line = line
        self._socket = cast("None", line)  # only what `WorkerEnd` has is asked of it
        self._say(Word("stay", self.context.round))

    @property
    def meeting_place(self) -> tuple[str, str]:
        """Where its round meets."""
        assert self._environment is not None
        return self._environment["MASTER_ADDR"], self._environment["MASTER_PORT"]

    def hands_over(self, link: Link) -> None:
        """As `register_sockets`, which looks at real sockets."""
        self._line.attach(link)
        self._say(Word("hold", self.context.round, count=1))

    def ask(self, why: str) -> None:
        """It has left its process group, and wants its next rank assignment."""
        self._say(Word("next", self.context.round, text=why[:500]))

    def hang_up(self) -> None:
        """The process ends."""
        self._line.close()

    def _listen(self, timeout: float | None = None, *, wait: bool = False) -> None:
        for body in take_frames(self._line.got):
            self._take(decode(News, body))


@dataclass(eq=False)
class ProcessGroup(Group):
    """The workers of one round, from when the first of them comes until they have left it.

    Attributes:
        run, round: whose they are.
        here: by rank, those who came.
        gone: ranks that have left it, or whose end of it is torn.
        linked: ranks whose groups have connected.
        claims: of each rank.
        ready: by pair of source and target, who of the two has come to the transfer.
        in_sync: ranks that have the job's state.
        arrived: by step, ranks that wait for its collective; `reduced`: the last step whose collective is done.
        committed: the last step that one of them has committed.
        told: by step, whether one of the ranks had been told of another round when it committed it.
    """

    run: str = ""
    round: int = 0
    here: "dict[int, Stayer]" = field(default_factory=dict[int, "Stayer"])
    gone: set[int] = field(default_factory=set[int])
    linked: set[int] = field(default_factory=set[int])
    claims: dict[int, Claim] = field(default_factory=dict[int, Claim])
    ready: dict[tuple[int, int], set[int]] = field(default_factory=dict[tuple[int, int], set[int]])
    in_sync: set[int] = field(default_factory=set[int])
    arrived: dict[int, set[int]] = field(default_factory=dict[int, set[int]])
    reduced: int = NOTHING
    committed: int = NOTHING
    told: dict[int, bool] = field(default_factory=dict[int, bool])


@dataclass(eq=False)
class Stayer:
    """One such worker.

    Attributes:
        step, history: its state; NOTHING where it has none, or none that is whole.
        since, begun: of its claim; see `adapters/client/commits.py`.
        attempt: counts its process groups: what was begun in an earlier one comes to nothing.
        rank: in its process group.
        doing: what it is at. Who gathers, transfers or reduces waits for others, and is freed where its process group
            is broken.
        served: what it waits for has been sent by all.
        broken: what it has noticed of its process group's end, which matters when it next needs the others.
        missed: ranks to which it has no connection any more.
        held: what happens as soon as its machine goes on.
    """

    worker: Worker
    members: Member
    step: int = NOTHING
    history: History = ()
    since: int = 0
    begun: int = 0
    attempt: int = 0
    rank: int = 0
    doing: Literal["asks", "meets", "connects", "gathers", "transfers", "computes", "reduces", "ends"] = "asks"
    served: bool = False
    group: ProcessGroup | None = None
    link: Link | None = None
    broken: str = ""
    missed: set[int] = field(default_factory=set[int])
    sits: float = 0.0
    todo: Sequence[tuple[int, int]] = ()
    agreed: int = 0
    begins: int = 0
    held: deque[Callable[[], object]] = field(default_factory=deque[Callable[[], object]])


class Stayers(Script):
    """Trains `work` seconds, a step at a time."""

    def __init__(self, world: "World", shape: Shape) -> None:
        super().__init__(world, shape.work)
        self._world = world
        self._step = shape.step
        self._steps = max(1, round(shape.work / shape.step))
        self._process_groups: dict[tuple[str, str], ProcessGroup] = {}
        self._stayers: dict[Worker, Stayer] = {}

    # -- time, as a worker lives it

    def _later(self, stayer: Stayer, seconds: float, what: Callable[..., object], *arguments: object) -> None:
        self._world.after(seconds, self._now, stayer, stayer.attempt, what, arguments)

    def _now(self, stayer: Stayer, attempt: int, what: Callable[..., object], arguments: Sequence[object]) -> None:
        if stayer.worker.paused:
            stayer.held.append(lambda: self._do(stayer, attempt, what, arguments))
            if len(stayer.held) == 1:
                self._world.after(0.05, self._go_on, stayer)
        else:
            self._do(stayer, attempt, what, arguments)

    def _do(self, stayer: Stayer, attempt: int, what: Callable[..., object], arguments: Sequence[object]) -> None:
        if stayer.worker.ended is None and stayer.attempt == attempt:
            what(stayer, *arguments)

    def _go_on(self, stayer: Stayer) -> None:
        """Its machine stands still, or goes on: then what has waited happens, in order."""
        if stayer.worker.paused and stayer.worker.ended is None:
            self._world.after(0.05, self._go_on, stayer)
            return
        while stayer.held:
            stayer.held.popleft()()

    def computes(self, worker: Worker) -> bool:
        """Every other one that is in a long call; the others wait for something in it."""
        stayer = self._stayers.get(worker)
        return stayer is not None and stayer.doing == "computes" and not worker.paused and worker.number % 2 == 0

    # -- its rank assignments

    def begin(self, worker: Worker) -> None:
        """Its interpreter starts, and does all that comes before its first process group."""
        self._world.after(self._world.chance.uniform(0.05, 0.8), self._join, worker)

    def _join(self, worker: Worker) -> None:
        if worker.ended:
            return
        if worker.paused:
            self._world.after(0.05, self._join, worker)
            return
        line = self._world.process_groups[worker.owner].connect(worker.number, lambda: self._has_news(worker))
        stayer = self._stayers[worker] = Stayer(worker, Member(worker.environment, line))
        self._world.checker.survivors.on_stays(worker)
        if stayer.members.standby:
            self._ask(stayer, "")
        else:
            self._meet_others(stayer)

    def _has_news(self, worker: Worker) -> None:
        if (stayer := self._stayers.get(worker)) and not worker.ended:
            self._world.after(0.0, self._now, stayer, stayer.attempt, self._hear, ())

    def _hear(self, stayer: Stayer) -> None:
        asked = stayer.members.context.round
        over = stayer.members.over  # it listens
        if stayer.doing == "asks" and stayer.members.context.round != asked:
            self._meet_others(stayer)
        elif stayer.doing == "meets" and over:
            self._leave(stayer, "")

    def _leave(self, stayer: Stayer, why: str) -> None:
        """Undoes what was begun since the last commit, and asks for its next rank assignment."""
        group = stayer.group
        if group is not None:
            group.gone.add(stayer.rank)
        stayer.attempt += 1
        stayer.group, stayer.broken, stayer.missed, stayer.doing = None, "", set(), "asks"
        self._later(stayer, self._world.chance.choice((0.0005, 0.01, 0.05)), self._ask, why)

    def _ask(self, stayer: Stayer, why: str) -> None:
        self._world.say("script", f"{self._name(stayer)} wants its next rank{f': {why}' if why else ''}")
        self._world.checker.survivors.on_asked(stayer.worker, why)
        stayer.members.ask(why)

    def _name(self, stayer: Stayer) -> str:
        world = stayer.members.context
        return f"the worker {stayer.worker.number} on {stayer.worker.machine} (round {world.round})"

    # -- forming a process group

    def _meet_others(self, stayer: Stayer) -> None:
        world, where = stayer.members.context, stayer.members.meeting_place
        group = self._process_groups.get(where)
        there = [mate for mate in group.here.values() if mate.group is group and not mate.worker.ended] if group else []
        if group is None or not there:
            group = self._process_groups[where] = ProcessGroup(
                where, world.world_size, run=stayer.worker.run, round=world.round
            )
        for mate in there:
            names = f"{self._name(stayer)} and {self._name(mate)}"
            if mate.members.context.round != world.round:
                self._world.violated("two rounds never meet", f"{names} at {where}")
            elif mate.rank == world.rank:
                self._world.violated("one worker a rank", names)
        stayer.doing, stayer.group, stayer.rank, stayer.link = "meets", group, world.rank, None
        group.here[world.rank], group.workers[world.rank] = stayer, stayer.worker
        stayer.worker.group = group
        if stayer.members.over:
            self._leave(stayer, "")
            return
        self._later(stayer, FORM, self._gives_up)
        self._try_to_meet(group)

    def _gives_up(self, stayer: Stayer) -> None:
        if stayer.doing == "meets":
            self._leave(stayer, f"forming the process group failed: TimeoutError: not all ranks came within {FORM:g} s")

    def _try_to_meet(self, group: ProcessGroup) -> None:
        if group.gone or len(group.here) < group.world or any(mate.doing != "meets" for mate in group.here.values()):
            return
        if not self.whole(group):
            self._world.after(0.5, self._try_to_meet, group)
            return
        for stayer in group.here.values():
            stayer.doing = "connects"
            self._later(stayer, self._world.chance.uniform(0.002, 0.03), self._connect)

    def _connect(self, stayer: Stayer) -> None:
        group = _of(stayer)
        if group.gone or not self.whole(group):
            self._later(stayer, self._world.chance.uniform(0.0, CONNECT), self._cannot_connect)
            return
        stayer.link = Link(lambda _: self._freed(stayer, group), lambda _: self._gone(stayer, group))
        stayer.members.hands_over(stayer.link)
        stayer.members.formed()
        stayer.doing, stayer.served = "gathers", False
        group.linked.add(stayer.rank)
        group.claims[stayer.rank] = Claim(stayer.step, stayer.since, stayer.begun)
        self._world.checker.survivors.on_claim(stayer.worker, group, stayer.step)
        self._try_to_gather(group)

    def _cannot_connect(self, stayer: Stayer) -> None:
        self._leave(stayer, "forming the process group failed: DistNetworkError: the groups did not connect")

    # -- who has the job's state

    def _try_to_gather(self, group: ProcessGroup) -> None:
        if len(group.claims) < group.world or group.gone:
            return
        if not self.whole(group):
            self._world.after(0.25, self._try_to_gather, group)
            return
        claims = [group.claims[rank] for rank in range(group.world)]
        self._world.stands(group, [claim.step for claim in claims])
        last = self._world.chance.choice(LAST)
        for stayer in group.here.values():
            stayer.served = True
            self._later(stayer, self._world.chance.uniform(FIRST, last), self._sync, claims)

    def _sync(self, stayer: Stayer, claims: Sequence[Claim]) -> None:
        if lost(claims):
            self._world.checker.survivors.on_state_lost(stayer.worker)
            self._fail_with(stayer.worker, f"{StateLost.__name__}: no living worker has a committed step whole")
            return
        stayer.doing = "transfers"
        stayer.agreed, pairs = transfers(claims)
        stayer.begins = beginning(claims, stayer.members.context.round)
        stayer.todo = [pair for pair in pairs if stayer.rank in pair]
        self._next_transfer(stayer)

    def _next_transfer(self, stayer: Stayer) -> None:
        group = _of(stayer)
        if not stayer.todo:
            self._has_state(stayer)
            return
        pair = source, target = stayer.todo[0]
        if stayer.missed.intersection(pair):
            self._leave(stayer, stayer.broken)
            return
        if stayer.rank == target:
            stayer.step, stayer.history = NOTHING, ()  # while it is neither the one nor the other
            stayer.members.report_state(False)
            self._world.checker.survivors.on_receiving(stayer.worker)
        ready = group.ready.setdefault(pair, set())
        ready.add(stayer.rank)
        if len(ready) == 2:
            words = (
                f"rank {source} of round {stayer.members.context.round} brings step {stayer.agreed} to rank {target}"
            )
            self._world.say("script", words)
            self._world.count("transferring")
            seconds = self._world.chance.choice(BRINGS) * self._world.chance.uniform(0.5, 1.5)
            self._world.after(seconds, self._transferred, group, pair)

    def _transferred(self, group: ProcessGroup, pair: tuple[int, int]) -> None:
        source, target = (group.here[rank] for rank in pair)
        if any(rank in group.gone for rank in pair):
            return
        if not self._are_connected(source.worker, target.worker):
            self._world.after(0.25, self._transferred, group, pair)
            return
        state = source.agreed, source.history
        for stayer in (source, target):
            stayer.todo = stayer.todo[1:]
            self._later(stayer, self._world.chance.uniform(FIRST, LAST[1]), self._passed_on, pair, state)

    def _passed_on(self, stayer: Stayer, pair: tuple[int, int], state: tuple[int, History]) -> None:
        if stayer.rank == pair[1]:
            stayer.step, stayer.history = state
            stayer.begun = stayer.begins
            stayer.members.report_state(True)
            self._world.checker.survivors.on_received(stayer.worker, *state)
        self._next_transfer(stayer)

    def _has_state(self, stayer: Stayer) -> None:
        group = _of(stayer)
        stayer.step, stayer.since, stayer.begun = stayer.agreed, stayer.members.context.round, stayer.begins
        stayer.members.report_state(True)
        group.in_sync.add(stayer.rank)
        self._world.checker.survivors.on_synced(stayer.worker, group, stayer.step, stayer.history)
        if len(group.in_sync) == group.world:
            group.running_since = self._world.now
            self._world.met(group)
        if stayer.members.over:
            self._leave(stayer, "")
            return
        self._begin_step(stayer)

    # -- training

    def _begin_step(self, stayer: Stayer) -> None:
        stayer.doing = "computes"
        if stayer.step >= self._steps:
            self._reduce(stayer)
            return
        chance, sits = self._world.chance, stayer.sits
        if chance.random() < SITS:
            sits += chance.uniform(*SITTING)
        stayer.sits = 0.0
        self._later(stayer, self._step * chance.uniform(0.7, 1.1) + sits, self._reduce)

    def _reduce(self, stayer: Stayer) -> None:
        if stayer.broken:
            self._leave(stayer, stayer.broken)
            return
        stayer.doing, stayer.served = "reduces", False
        group = _of(stayer)
        if stayer.step >= self._steps:  # once more, so that all end, or all take part in what comes
            told = stayer.members.planned or group.told.get(stayer.step, False)
            group.told[stayer.step + 1] = group.told.get(stayer.step + 1, False) or told
        group.arrived.setdefault(stayer.step + 1, set()).add(stayer.rank)
        self._try_to_reduce(group, stayer.step + 1)

    def _try_to_reduce(self, group: ProcessGroup, step: int) -> None:
        if len(group.arrived[step]) < group.world or group.gone or group.reduced >= step:
            return
        if not self.whole(group):
            self._world.after(0.25, self._try_to_reduce, group, step)
            return
        group.reduced = step
        last = self._world.chance.choice(LAST)
        for stayer in group.here.values():
            stayer.served = True
            self._later(stayer, self._world.chance.uniform(FIRST, last), self._commit)

    def _commit(self, stayer: Stayer) -> None:
        group, world = _of(stayer), stayer.members.context
        if stayer.step >= self._steps:
            self._finish(stayer, group)
            return
        stayer.step += 1
        stayer.history = (*stayer.history, world.round)
        self._world.checker.survivors.on_commit(stayer.worker, group, stayer.step, stayer.history)
        if group.committed < stayer.step:
            group.committed = stayer.step
            self._world.count("committed")
        if group.told.get(stayer.step - 1, False) or (
            group.world == 1 and (stayer.members.planned or stayer.members.over)
        ):
            self._leave(stayer, "")
            return
        group.told[stayer.step] = group.told.get(stayer.step, False) or stayer.members.planned
        self._begin_step(stayer)

    def _finish(self, stayer: Stayer, group: ProcessGroup) -> None:
        if group.told[stayer.step + 1]:
            self._leave(stayer, "")
            return
        stayer.doing = "ends"
        stayer.members.done()
        self._world.checker.survivors.on_done(stayer.worker)
        tail = self._world.chance.choice((0.001, 0.05, 0.6, 4.0))
        self._later(stayer, self._world.chance.uniform(0.0, tail), self._succeeds)

    def _succeeds(self, stayer: Stayer) -> None:
        stayer.members.hang_up()  # an interpreter closes what it has open some time before its process is gone
        self._later(stayer, self._world.chance.uniform(0.0, 0.05), self._is_gone)

    def _is_gone(self, stayer: Stayer) -> None:
        self.end(stayer.worker, 0, None)
        self._world.finishing(stayer.worker)

    # -- what happens to a process group

    def _freed(self, stayer: Stayer, group: ProcessGroup) -> None:
        """Nothing comes to `stayer` any more."""
        group.gone.add(stayer.rank)
        if stayer.group is group and stayer.worker.ended is None:
            words = self._world.chance.choice(COUPLED).format(stayer.rank)
            self._later(stayer, self._world.chance.uniform(0.00005, 0.001), self._feel, stayer.rank, words, False)

    def _gone(self, stayer: Stayer, group: ProcessGroup) -> None:
        """Nothing comes from `stayer` any more: its peers are freed when they hear of it."""
        in_order = stayer.group is not group or stayer.doing == "ends"  # else somebody has broken it
        in_order = in_order and (stayer.worker.ended is None or stayer.worker.ended[0] == 0)
        group.gone.add(stayer.rank)
        words = self._world.chance.choice(COUPLED).format(stayer.rank)
        for mate in group.here.values():
            if mate is not stayer and mate.group is group and mate.worker.ended is None:
                self._tell(mate, mate.attempt, stayer, words, in_order)

    def _tell(self, mate: Stayer, attempt: int, gone: Stayer, words: str, in_order: bool) -> None:
        """What closes a connection arrives as everything else does; its system tries until it does."""
        if mate.worker.ended or mate.attempt != attempt:
            return
        source, target = gone.worker.machine, mate.worker.machine
        if source == target or (self._world.is_on(source) and self._world.reaches(source, target)):
            seconds = self._world.chance.choice((0.0002, 0.002, 0.02)) * self._world.chance.uniform(0.5, 1.5)
            self._later(mate, seconds, self._feel, gone.rank, words, in_order)
        else:
            self._world.after(1.0, self._tell, mate, attempt, gone, words, in_order)

    def _feel(self, stayer: Stayer, rank: int, words: str, in_order: bool) -> None:
        """The connection with that rank has ended; with its own: all have. What was sent before is there first."""
        stayer.broken = stayer.broken or words
        stayer.missed |= set(_of(stayer).here) if rank == stayer.rank else {rank}
        match stayer.doing:
            case "gathers" | "reduces":
                free = not (in_order and stayer.served)
            case "transfers":
                free = bool(stayer.todo) and not stayer.missed.isdisjoint(stayer.todo[0])
            case _:
                free = False  # it learns of it when it next needs the others
        if free:
            self._leave(stayer, stayer.broken)

    def _are_connected(self, one: Worker, other: Worker) -> bool:
        paused = one.paused or other.paused
        return not paused and (
            self._world.reaches(one.machine, other.machine) and self._world.reaches(other.machine, one.machine)
        )

    # -- ends

    def told_to_go(self, worker: Worker, number: int, grace: float) -> None:
        """See `Script.told_to_go`; an interpreter that still starts dies of it."""
        if worker in self._stayers:
            super().told_to_go(worker, number, grace)
        else:
            worker.told = True
            self.end(worker, None, number)

    def hurt(self, worker: Worker, how: str, mark: str) -> None:
        """See `Script.hurt`; one that hangs does so for a while, in a call that nobody can break off."""
        if how == "hang" and (stayer := self._stayers.get(worker)):
            stayer.sits += self._world.chance.uniform(*SITTING)
        super().hurt(worker, how, mark)

    def agent_gone(self, owner: str) -> None:
        """An agent's process has ended: so have its ends of all lines."""
        if process_groups := self._world.process_groups.get(owner):
            process_groups.abandon()

    def _leave_group(self, worker: Worker) -> None:
        """Its process closes what it has open; see `Script`."""
        stayer = self._stayers.pop(worker, None)
        if stayer is None:
            return
        stayer.attempt += 1
        stayer.members.hang_up()
        self._world.checker.survivors.on_hung_up(worker)
        group = stayer.group
        if group is not None:
            group.gone.add(stayer.rank)
        if stayer.link is not None:
            stayer.link.left()
        elif group is not None and stayer.rank == 0:  # the others have met at its store
            for mate in group.here.values():
                if mate.group is group and mate.doing == "meets" and mate.worker.ended is None:
                    self._world.after(0.01, self._now, mate, mate.attempt, self._loses_store, (worker.machine,))

    def _loses_store(self, stayer: Stayer, machine: str) -> None:
        if stayer.doing != "meets":
            return
        if self._world.is_on(machine) and self._world.reaches(machine, stayer.worker.machine):
            self._leave(stayer, "forming the process group failed: DistNetworkError: the store of rank 0 is closed")
        else:
            self._later(stayer, 1.0, self._loses_store, machine)


def _of(stayer: Stayer) -> ProcessGroup:
    assert stayer.group is not None, "only who is in a process group does that"
    return stayer.group
