"""The rows on servers of ranks in synchronous training: prepared before a step is committed, applied when it is.

Which ranks have come so far is the caller's affair: see `adapters/torch/lockstep_batches.py`, and decision 051.
"""

import weakref

from ...master.data.lockstep import Plan, Position, SamplerMisused, Step
from ...rendezvous.base.frozen import replace
from . import pushes
from .channel import say_line
from .context import context
from .pushes import Pushes, StepRecords

owners: "dict[str, weakref.ref[object]]" = {}
"""Of this process: whose steps the rows follow, by what names the records and their order."""


class StepRows:
    """Of one sampler.

    Attributes:
        settled: the servers were asked in this round, and rows and position belong together.
    """

    def __init__(self) -> None:
        self.settled = False
        self._prepared: StepRecords | None = None

    def __getstate__(self) -> dict[str, object]:
        """A copy, here or in another process, has to ask for itself."""
        return {"settled": False, "_prepared": None}

    def regroup(self) -> None:
        """The ranks are others, or go on from elsewhere: what was prepared is the next round's to decide."""
        self.settled = False
        self._prepared = None

    def settle(self, plan: Plan, position: Position, rank: int) -> tuple[Plan, Position]:
        """From where the ranks go on, and which records no step may cross. On each rank, when all are at `position`."""
        name = _name_order(plan)
        if not pushes.registered or not self._owns(name):
            return plan, position
        here = position.epoch, position.consumed
        positions = pushes.registered[0].settle_steps(name, context().round, here)
        self.settled = True
        rows = _read_position(plan, positions[0], position)
        if rows < here:
            if rank == 0:
                say_line(
                    f"the tables have {_describe(rows)}, and the position was {_describe(here)}: it goes back to theirs"
                )
            position = Position(*rows, position.step)
        elif rows > here and rank == 0:
            say_line(
                f"the tables have {_describe(rows)} already, and the position is {_describe(here)}: until theirs is "
                "reached, only the rest of the model is trained"
            )
        return _cut(plan, tuple(positions)), position

    def prepare(self, plan: Plan, step: Step, rank: int) -> None:
        """Before the ranks say that they are through with the step. Raises SamplerMisused, and as `Pushes` does."""
        if not pushes.registered:
            return
        if not self.settled:
            raise SamplerMisused(_UNSETTLED if self._owns(_name_order(plan)) else _SECOND)
        end = min(plan.size, step.start + step.count)
        self._prepared = StepRecords(_name_order(plan), step.epoch, context().round, step.start, end)
        self._pushes().prepare_step(self._prepared, rank, step.world)

    def apply(self) -> None:
        """What is prepared, when no rank can undo it. Raises as `Pushes` does."""
        if (prepared := self._prepared) is not None:
            self._prepared = None
            self._pushes().apply_step(prepared)

    @property
    def has_prepared(self) -> bool:
        """Something waits for `apply`."""
        return self._prepared is not None

    def _pushes(self) -> Pushes:
        return pushes.registered[0]

    def _owns(self, name: str) -> bool:
        """Whether this is the first in this process with these records and their order."""
        owner = owners[name]() if name in owners else None
        if owner is None:
            owners[name] = weakref.ref(self)
        return owner is None or owner is self


_UNSETTLED = (
    "commit() of an ElasticBatchSampler with a table that was declared after the loop over the loader began: declare "
    "all tables before it"
)

_SECOND = (
    "commit() of a second ElasticBatchSampler with the same size and seed, with gradients that go to tables: the "
    "tables know records by these, and would take its steps for those of the first. Give it a seed of its own"
)


def _name_order(plan: Plan) -> str:
    return f"sampler {plan.size} {plan.seed}" if plan.shuffle else f"sampler {plan.size}"


def _read_position(plan: Plan, rows: tuple[int, int], here: Position) -> tuple[int, int]:
    """Rows that have a whole epoch are at the beginning of the next; with tail="drop" nobody knows its last step."""
    epoch, record = rows
    dropped = plan.full(max(plan.largest_world, 1)) if plan.tail == "drop" else 1
    ended = record == plan.size or ((epoch + 1, 0) == (here.epoch, here.consumed) and plan.size - record < dropped)
    return (epoch + 1, 0) if record and ended else rows


def _cut(plan: Plan, positions: tuple[tuple[int, int], ...]) -> Plan:
    return plan if plan.cuts == positions else replace(plan, cuts=positions)


def _describe(position: tuple[int, int]) -> str:
    return f"record {position[1]} of epoch {position[0]}"
