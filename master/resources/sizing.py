"""How many nodes a job should have now, from the steps that it makes (pure).

An algorithm (`planners/`) says which measured size is the best, and which other is worth a look. The rules for each
look are here, and are the same for all of them:

- One change at a time: the next one waits until the job has the nodes of the last, and has been measured with them.
- A look that did not help is undone: the job goes back to the best size that was measured.
- All looks together may cost a share of the work that the job has done (`Planner.cap`). A look costs the time without
  steps while nodes come or go, the steps that are made again, and what is done less while it lasts. It begins when it
  can be paid with the way back, and ends early where it becomes dearer.
- A size is looked at once, until the job has become faster or slower by itself.

                looks: worth it, and can be paid
       at home ─────────────────────────────────▶ looking ──▶ measured: the better of the two is home
          ▲                                          │
          └── no place, too dear, did not help ──────┘
"""

from collections.abc import Sequence

from ...rendezvous.base.frozen import dataclass
from ...rendezvous.base.plural import plural
from ..machine.pace import Pace, Stepped
from .planners import Planner, SizeChoice, SizesSeen
from .step_rates import measure

RESERVE_SECONDS = 0.5
"""Of a look: the job's work in so many seconds is set aside for a size that does less."""

IN_PLACE_SECONDS, RESTART_SECONDS = 0.3, 0.5
"""What a change is taken to cost before the first: where workers keep their process, and at least where they do not;
those take as long as the job took to its first step."""

PLACE_SECONDS = 120.0
"""So long nodes may take to come or go; then the job keeps what it has, and that number is no choice for
`AGAIN_SECONDS`."""

AGAIN_SECONDS = 1800.0

SILENT_IN_LOOK = 2.0
"""Seconds without a report of steps that are no loss yet: two usually lie a second apart."""

SILENT_SECONDS = 60.0
"""Without any step, after the workers have begun: the script does not tell of its steps."""

SAME, OLD = 0.005, 10.0
"""Other sizes are thought over again where the job's rate has changed by so much, or after so many seconds."""

DRIFT = 0.15
"""A job that does so much more or less than it did with the same nodes has changed: other sizes are looked at anew."""


@dataclass(frozen=True, slots=True)
class JobNow:
    """What the master sees of its job.

    Attributes:
        now: seconds, as all times here.
        round: the newest round's number.
        nodes, workers: of it; 0 while none runs.
        running: all its workers run.
        repeated: seconds of training, since the job began, that were lost and made again.
        in_place: workers keep their process in a change.
    """

    now: float
    round: int
    nodes: int
    workers: int
    running: bool
    repeated: float
    in_place: bool


class Sizing:
    """Of one job, while one master leads it.

    Args:
        sizes: numbers of nodes that it may have, in increasing order.
        start: how many it has, or begins with.

    Attributes:
        plan: what it should have now.
        lost, work: what the looks have cost, and what was done in all: in steps, or steps times workers.
    """

    def __init__(self, planner: Planner, sizes: Sequence[int], start: int) -> None:
        self._planner = planner
        self._sizes = tuple(sizes)
        self._home = start
        self._rates = dict[int, float]()
        self._not_now = dict[int, float]()  # sizes, and until when
        self._asked_at: float | None = None  # since when the job is to have another size
        self._apart_since: float | None = None  # since when it has another than that
        self._pace = Pace()
        self._first_at: float | None = None  # when the round told of its first step
        self._round = 0
        self._nodes = 0  # in it, as far as it was looked at
        self._units = 1  # work in one step
        self._last: tuple[float, int, int] | None = None  # the newest report: its time, its counter, its count
        self._change_seconds: float | None = None
        self._repeated = 0.0
        self._looked_at: float | None = None
        self._node_seconds = 0.0
        self._steps_before = 1.0  # a second, with the nodes that it keeps
        self._deficit = self._budget = 0.0  # of the look that lasts: what it has cost so far, and may
        self._looked = 0.0  # seconds of it that reports tell of
        self._explored: tuple[float, float, SizeChoice | None] | None = None  # for which rate, when, and the answer
        self._running_since: float | None = None  # the first time
        self._began: float | None = None  # its first step
        self._kind: str = ""
        self.lost = self.work = 0.0
        self.plan = SizeChoice(start, f"{plural(start, 'node')} until the steps that it makes are measured")

    def count_steps(self, told: Stepped, now: float) -> None:
        """A worker has told how many steps it has made."""
        if told.round < self._round or not told.steps:
            return
        self._begin_round(told.round)
        self._pace.told(told, now)
        if self._first_at is None:
            self._first_at = now
            if self._last is not None:
                self._count_change(told, now)
        if self._began is None:
            self._began = now
        self._last = now, told.counter, told.steps
        then, before = ([(now, told.steps), *self._pace.counters[told.counter]])[-2]
        seconds, steps = now - then, max(0, told.steps - before)
        self.work += steps * self._units
        if self._nodes == self.plan.nodes != self._home:
            self._deficit += seconds * self._rates[self._home] - steps * self._units
            self._looked += seconds

    def revise(self, job: JobNow) -> SizeChoice | None:
        """The plan where it has changed; None where it has not."""
        self._begin_round(job.round)
        self._node_seconds += job.nodes * (job.now - (job.now if self._looked_at is None else self._looked_at))
        self._looked_at = job.now
        before, repeated = self.plan, job.repeated - self._repeated
        self._repeated = job.repeated
        if job.nodes and job.running:
            self._running_since = job.now if self._running_since is None else self._running_since
            self._nodes = job.nodes
            self._units = 1 if self._planner.steps_alone else job.workers
            if self._asked_at is not None:
                self.lost += repeated * self._rates.get(self._home, 0.0)
            self._decide(job)
        return self.plan if self.plan != before else None

    # -- what it costs ----------------------------------------------------------------------------------------------

    def _begin_round(self, round: int) -> None:
        if round > self._round:
            self._round, self._nodes, self._first_at = round, 0, None

    def _count_change(self, told: Stepped, now: float) -> None:
        """The first step of a round: what the way to it has cost, if it was a change of the plan's."""
        assert self._last is not None, "there was a step before"
        then, counter, count = self._last
        made = told.steps - count if counter == told.counter else told.steps
        if self._asked_at is None or self._home not in self._rates:
            return
        stood = max(0.0, now - then - made / self._steps_before)
        self._change_seconds = stood
        self.lost += stood * self._rates[self._home]

    def _budget_for_look(self, job: JobNow) -> float:
        """The work that a look may cost, beside the change and the way back; below 0: it cannot be paid."""
        change = self._change_seconds
        if change is None:
            start = (job.now if self._began is None else self._began) - self._ran_since(job)
            change = IN_PLACE_SECONDS if job.in_place else max(RESTART_SECONDS, start)
        return self._planner.cap * self.work - self.lost - 2 * change * self._rates.get(self._home, 0.0)

    def _can_pay(self, job: JobNow) -> bool:
        """For a look, with something for a size that does less."""
        return self._budget_for_look(job) >= RESERVE_SECONDS * self._rates[self._home]

    def _too_dear(self, job: JobNow) -> bool:
        """The look has come to cost all that it may."""
        assert self._last is not None, "there were steps before"
        silent = max(0.0, job.now - self._last[0] - SILENT_IN_LOOK) * self._rates[self._home]
        return self._deficit + silent > self._budget

    # -- what is to be done -----------------------------------------------------------------------------------------

    def _decide(self, job: JobNow) -> None:
        if self._began is None:
            if job.now - self._ran_since(job) >= SILENT_SECONDS:
                own = plural(job.nodes, "node")
                why = f"{own}, as it has: its goodput is not known, because its script reports no steps"
                self._home = job.nodes
                self._tell_why("unknown", SizeChoice(job.nodes, why))
            return
        looking = self.plan.nodes != self._home
        if job.nodes != self.plan.nodes:
            self._apart_since = job.now if self._apart_since is None else self._apart_since
            if job.now - self._apart_since >= PLACE_SECONDS and (looking or job.nodes in self._sizes):
                self._not_now[self.plan.nodes] = job.now + AGAIN_SECONDS
                why = f"it did not come to have {plural(self.plan.nodes, 'node')} within {PLACE_SECONDS:g} s"
                self._home = self._home if looking else job.nodes
                self._go("has", SizeChoice(self._home, f"{plural(self._home, 'node')}: {why}"), job)
            return
        self._apart_since = None
        found = None if self._first_at is None else measure(self._pace.counters.values(), self._first_at)
        work = found.rate * self._units if found else 0.0
        if looking and self._too_dear(job):
            if not found and self._looked:  # what was seen of its first steps is better than nothing
                work = self._rates[self._home] - self._deficit / self._looked
            self._end_look(work, job, "looking longer would cost more than it may: ")
        elif not found or not found.known:
            return
        elif looking:
            self._end_look(work, job, "")
        else:
            self._asked_at = None
            self._steps_before = found.rate
            self._stay(work, job)

    def _end_look(self, rate: float, job: JobNow, words: str) -> None:
        """The job has been measured with the nodes that were looked at, or as far as that could be paid."""
        self.lost += max(0.0, self._deficit)
        if rate > 0:
            self._rates[self.plan.nodes] = rate
        else:
            self._not_now[self.plan.nodes] = job.now + AGAIN_SECONDS
        best = self._planner.choose(self._seen(job))
        self._home = best.nodes
        self._go("ends", SizeChoice(best.nodes, words + best.why), job)

    def _stay(self, rate: float, job: JobNow) -> None:
        """The job has the nodes that it keeps: is another number worth a look?"""
        before = self._rates.get(self._home, rate)
        if abs(rate / before - 1) > DRIFT:
            self._rates.clear()
            self._first_at = job.now  # what was told before tells of another job
        self._rates[self._home] = rate
        if self._first_at == job.now:
            return
        seen = self._seen(job)
        if self._explored is None or abs(rate / self._explored[0] - 1) > SAME or job.now > self._explored[1] + OLD:
            self._explored = rate, job.now, self._planner.explore(seen)
        other = self._explored[2]
        if other is not None and other.nodes in seen.sizes and other.nodes not in self._rates:
            if self._can_pay(job):
                self._go("looks", other, job)
            else:
                share = f"{100 * self._planner.cap:g} % of the work so far"
                why = f"{plural(self._home, 'node')}; {other.why}: tried once that costs less than {share}"
                self._tell_why(f"saves for {other.nodes}", SizeChoice(self._home, why))
            return
        best = self._planner.choose(seen)
        if best.nodes == self._home:
            self._tell_why("stays", best)
        elif self._planner.moves(seen, best) and self._can_pay(job):
            self._home = best.nodes
            self._go("moves", best, job)

    def _ran_since(self, job: JobNow) -> float:
        return job.now if self._running_since is None else self._running_since

    def _seen(self, job: JobNow) -> SizesSeen:
        sizes = [size for size in self._sizes if self._not_now.get(size, 0.0) <= job.now]
        elapsed = job.now - (self._began if self._began is not None else job.now)
        return SizesSeen(sizes, self._home, dict(self._rates), elapsed, self.work, self._node_seconds)

    def _go(self, kind: str, plan: SizeChoice, job: JobNow) -> None:
        if plan.nodes != job.nodes:
            self._asked_at = job.now
        self._deficit, self._budget, self._looked = 0.0, self._budget_for_look(job), 0.0
        self._explored = self._apart_since = None
        self._kind, self.plan = kind, plan

    def _tell_why(self, kind: str, plan: SizeChoice) -> None:
        """The same number for another reason; figures in it that change a little are no news."""
        if kind != self._kind or plan.nodes != self.plan.nodes:
            self._kind, self.plan = kind, plan
