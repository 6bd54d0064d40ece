"""What a PyTorch script uses: batches of a map-style dataset in synchronous training, at any world size.

Which rank trains on what is arithmetic (`master/data/lockstep.py`); here are torch's classes around it. Nobody asks the
master, and the only collective compares the ranks before the first step. For leased shards see `leased_batches.py`.
"""

import dataclasses
import inspect
import threading
import warnings
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from typing import Any

import torch
from torch.utils.data import BatchSampler, Sampler

from ...master.data.lockstep import (
    LARGEST,
    Order,
    Plan,
    Position,
    RanksDiffer,
    SamplerMisused,
    Step,
    Tail,
    disagreement,
)
from ...master.data.permutation import Permutation
from ...rendezvous.base.plural import ranks
from ..client.context import largest_world
from ..client.saves import Saves
from ..client.step_rows import StepRows
from ..client.steps import Steps
from .ranks import gathered, initialised, rank_and_size

AHEAD = 1024
"""Records of this rank that are worked out at a time."""

_LOW = 2**32 - 1


class ElasticBatchSampler(Sampler[list[int]]):
    """The batches of this rank, for `DataLoader(dataset, batch_sampler=...)`; each record once in every epoch.

        sampler = ElasticBatchSampler(len(dataset), 32, epochs=10)
        loader = DataLoader(dataset, batch_sampler=sampler, num_workers=4)
        if checkpoint: sampler.load_state_dict(checkpoint["sampler"])
        for epoch in range(sampler.epoch, 10):
            for batch in loader:
                ...                                 # forward, backward
                optimizer.step()
                sampler.commit()                    # before a checkpoint is written, which takes state_dict()

    One loop over the loader covers one epoch, as with `DistributedSampler`; after a restart the first covers what is
    left of its epoch. The epoch's order is new by itself: there is no `set_epoch`. Rank and world size come from
    torch.distributed where that is initialised, else from the launcher's environment; without either it is a world of
    one. A loop takes the world as it is when it begins.

    The position is moved by `commit` alone. A loop that is left and begun again, in this process or in the next, goes
    on after the last commit, whatever the loader's workers had fetched.

    With gradient accumulation, or `fixed_global_batch`, a step has `accumulate` batches, and at the end of an epoch it
    can be another number: step when that many have been added up, and do not count on the argument.

    Args:
        size: records in the dataset, the same on every rank.
        batch_size: records per batch of one rank. At the end of an epoch a batch can be larger, by one where a few
            records are left over, at most twice as large where the job may grow beyond them (see `tail`).
        epochs: how often each record is trained on; after them a loop is empty.
        shuffle: a new order in each epoch; False: the dataset's.
        seed: of the orders, from -2**63 to 2**63 - 1.
        tail: what becomes of records at the end of an epoch that make no whole step. "uneven": they are a step of
            smaller batches; fewer than the job may have ranks join the step before. "drop": nobody trains on them
            (`dropped`). "pad": records from the beginning of the epoch's order are used again (`repeated`).
        accumulate: batches per rank and optimizer step.
        fixed_global_batch: records per step of all ranks together, at any world size up to that number; the number of
            batches per step follows. A tail shorter than that joins the step before, so that every step of an epoch
            has the same records whatever the world size is and becomes.

    Raises:
        elastic_run.exceptions.BadSampler: an argument makes no sense (a ValueError).
        elastic_run.exceptions.WorldSizeRefused: there are too many ranks for these arguments (a ValueError).
        elastic_run.exceptions.BadEnvironment: the launcher's environment is incomplete (a ValueError).
        TypeError: an argument is of the wrong type.
    """

    def __init__(
        self,
        size: int,
        batch_size: int,
        *,
        epochs: int = 1,
        shuffle: bool = True,
        seed: int = 0,
        tail: Tail = "uneven",
        accumulate: int = 1,
        fixed_global_batch: int | None = None,
    ) -> None:
        self._plan = Plan(
            size, batch_size, epochs, tail, accumulate, fixed_global_batch, shuffle, seed, largest_world()
        )
        self._position = Position()
        self._pass: _Pass | None = None
        self._saves = Saves()
        self._counted = Steps()
        self._agreed = 0  # the world size at which the ranks have been compared
        self._rows = StepRows()
        self._plan.check(rank_and_size()[1])

    def __iter__(self) -> "_Pass":
        """The batches of this rank from the last commit to the end of its epoch.

        The first time, and after `load_state_dict` or a change of the world, all ranks must come here together: they
        are compared, by one small collective.

        Raises:
            elastic_run.exceptions.RanksDiffer: they would not train on the same data.
            elastic_run.exceptions.WorldSizeRefused: there are too many ranks for the sampler's arguments.
            TypeError: the loader was given this as `sampler=`, or a library chooses among this rank's batches again.
        """
        # Only whoever iterates tells them apart: torch wraps a `sampler=` and hands a `batch_sampler=` on as it is.
        frame = inspect.currentframe()
        caller: Any = frame.f_back.f_locals.get("self") if frame is not None and frame.f_back is not None else None
        del frame  # it holds itself and the loader's iterator: as garbage, loader processes forked later found that
        if isinstance(caller, BatchSampler):
            raise TypeError(_wrapped_by(type(caller)))
        del caller
        rank, size = rank_and_size()
        self._plan.check(size)
        if size > 1 and initialised() and self._agreed != size:
            self._agree(size)
        self._settle_rows(rank)
        self._position = self._plan.settled(self._position, size)
        if self._pass is not None:
            self._pass.over = True
            if self._pass.in_vain:
                warnings.warn(
                    f"all batches of epoch {self._pass.epoch} were drawn and no step was committed: this loop starts "
                    "with the same records again; call the sampler's commit() after each optimizer step",
                    RuntimeWarning,
                    stacklevel=2,
                )
        self._pass = _Pass(self._plan, self._position, rank, size)
        return self._pass

    def __len__(self) -> int:
        """Batches of this rank from the last commit to the end of its epoch: what a loop that begins now will give."""
        return self._plan.micro_batches_left(*self._settled())

    def commit(self) -> None:
        """Commits the batches of this step: they are in the model. Once after every optimizer step, on every rank.

        Raises:
            elastic_run.exceptions.SamplerMisused: nothing was drawn since the last commit (it was called twice), or
                not yet all batches of the step. What a loader with workers has fetched ahead counts as drawn as far as
                that can be told from here; a commit too many is refused at the end of the epoch at the latest. With
                tables on servers also: a table was declared after the loop began, or another sampler of this process
                has the same size and seed.
            elastic_run.exceptions.RanksDiffer: another rank could not push its gradients to tables on servers, and
                raises why.
        """
        self._commit_step()
        self._apply_rows()

    def _commit_step(self) -> None:
        """All of `commit` but that the rows have it; `State` calls it."""
        if self._pass is None:
            raise SamplerMisused(
                "commit() before any batch was drawn (or after load_state_dict): loop over the loader first, and "
                "commit after each optimizer step"
            )
        if self._pass.over or self._position.epoch != self._pass.epoch:
            raise SamplerMisused(
                f"commit() although every step of epoch {self._pass.epoch} has been committed: one of its steps was "
                "committed twice; call commit() once per optimizer step"
            )
        step = self._step()
        self._pass.commit(step.accumulate)
        self._prepare_rows(step, self._pass)
        self._position = self._plan.after(self._position, self._pass.size)
        self._saves.committed()
        self._counted.committed()

    def _prepare_rows(self, step: Step, of: "_Pass") -> None:
        """Where gradients go to tables: collective, so that no rank commits a step that another has not prepared."""
        error = None
        try:
            self._rows.prepare(self._plan, step, of.rank)
        except Exception as raised:  # noqa: BLE001  whatever it is: the others wait for this rank
            error = raised
        if error is None and not self._rows.has_prepared:
            return
        if of.size > 1 and not initialised():
            raise SamplerMisused(
                "commit() of an ElasticBatchSampler with gradients that go to tables needs a process group: all ranks "
                "are to have pushed a step before any commits it"
            )
        failed = (
            [rank for rank, (ok,) in enumerate(gathered([error is None], of.size)) if not ok] if of.size > 1 else []
        )
        if error is not None:
            raise error
        if failed:
            raise RanksDiffer(f"{ranks(failed)} could not push gradients of this step to tables: no rank commits it")

    def _apply_rows(self, *, together: bool = False) -> None:
        """`together`: each rank can undo the step until all have committed it. Collective then, as `commit` is."""
        if self._rows.has_prepared:
            if together and (size := rank_and_size()[1]) > 1:
                gathered([self._position.step], size)
            self._rows.apply()

    def _settle_rows(self, rank: int) -> None:
        """Once in each round, on each rank, when all have the same position."""
        if not self._rows.settled:
            self._plan, self._position = self._rows.settle(self._plan, self._position, rank)

    @property
    def epoch(self) -> int:
        """Epochs whose every step has been committed: the number of the one to train on, from 0."""
        return self._settled()[0].epoch

    @property
    def step(self) -> int:
        """Commits so far, in this job and in those whose checkpoint it continues from."""
        return self._position.step

    @property
    def remaining(self) -> int:
        """Optimizer steps from the last commit to the end of its epoch; `len()` counts batches."""
        return self._plan.steps_left(*self._settled())

    @property
    def accumulate(self) -> int:
        """Batches of each rank in the current step, which is the first that is not committed."""
        step = self._step_or_none()
        return step.accumulate if step else 1

    @property
    def weight(self) -> float:
        """This rank's records x world / all records of the current step: 1.0 unless ranks have different numbers.

        The mean of the ranks' mean losses, each times its weight, is the mean over the step's records. A rank for which
        the epoch has no record left, because the world has just grown, repeats one with weight 0.
        """
        step = self._step_or_none()
        return step.weight(self._rank()) if step else 0.0

    @property
    def weights(self) -> tuple[float, ...]:
        """The same for each of the current step's `accumulate` batches; they add up to `weight`."""
        step = self._step_or_none()
        return step.weights(self._rank()) if step else ()

    @property
    def dropped(self) -> int:
        """Records at the end of the current epoch that nobody will train on (tail="drop") in a world of this size."""
        return self._plan.dropped(*self._settled())

    @property
    def repeated(self) -> int:
        """Records of the current epoch that are used twice, if the world keeps its size."""
        return self._plan.repeated(*self._settled())

    def state_dict(self) -> dict[str, int | bool]:
        """Returns the position of the last commit, as plain numbers, the same on every rank."""
        self._saves.taken()
        return self._committed_state()

    def _committed_state(self) -> dict[str, int | bool]:
        """The same, for `State`, which takes it at every step: no checkpoint is written with it."""
        return self._plan.state(self._position)

    def load_state_dict(self, state: Mapping[str, object]) -> None:
        """Sets the position, at any world size. Begin a new loop afterwards; one that runs is over.

        The batch size, the tail, the accumulation and the number of epochs may be others than before.

        Args:
            state: what `state_dict` gave, on any rank.

        Raises:
            elastic_run.exceptions.BadSamplerState: the state is of another size, seed or shuffle, of a newer version,
                or damaged.
        """
        self._position = self._plan.restored(state)
        self._regroup()

    def _regroup(self) -> None:
        """The ranks are others from now on, or have another order: a loop that runs is over, and they are compared."""
        self._agreed = 0
        self._rows.regroup()
        if self._pass is not None:
            self._pass.over = True
            self._pass = None

    def _settled(self) -> tuple[Position, int]:
        """The last commit, or the next epoch where its own is at its end; and the world size."""
        size = self._pass.size if self._pass is not None else rank_and_size()[1]
        return self._plan.settled(self._position, size), size

    def _rank(self) -> int:
        return self._pass.rank if self._pass is not None else rank_and_size()[0]

    def _step(self) -> Step:
        return self._plan.step(*self._settled())

    def _step_or_none(self) -> Step | None:
        return self._step() if self.remaining else None

    def _agree(self, size: int) -> None:
        claims = gathered([*self._plan.claim(self._position), self._plan.largest_world], size)
        if text := disagreement([claim[:-1] for claim in claims]):
            raise RanksDiffer(text)
        self._plan = dataclasses.replace(self._plan, largest_world=max(claim[-1] for claim in claims))
        self._agreed = size


class _Pass(Iterator[list[int]]):
    """One loop: the batches of one rank from a position to the end of its epoch.

    Attributes:
        over: another loop has begun, or the position was restored.
    """

    def __init__(self, plan: Plan, position: Position, rank: int, size: int) -> None:
        self.epoch = position.epoch
        self.rank = rank
        self.size = size
        self.over = False
        self._plan = plan
        self._position = position
        self._steps = plan.steps_left(position, size)
        self._order = plan.order(position.epoch) if self._steps else None
        self._ahead = 0
        self._ready: deque[list[int]] = deque()
        self._drawn = 0
        self._committed = 0
        self._ended = False
        self._warned = False
        self._asked = 0  # since the last commit; also in vain, as a loader does whose workers have fetched all
        self._asker = 0

    @property
    def in_vain(self) -> bool:
        """All was drawn and nothing committed."""
        return self._ended and self._steps > 0 and not self._committed

    def __next__(self) -> list[int]:
        if self.over:
            raise SamplerMisused(
                "this loop over the loader has ended, because another was started or load_state_dict() was called: "
                "start a new one"
            )
        self._asked += 1
        self._asker = threading.get_ident()
        if not self._ready:
            if self._ahead == self._steps:
                self._ended = True
                raise StopIteration
            self._look_ahead()
        self._drawn += 1
        return self._ready.popleft()

    def _look_ahead(self) -> None:
        """Works out the next batches, enough of them that each costs microseconds."""
        parts: list[range] = []
        records = 0
        while self._ahead < self._steps and records < AHEAD:
            step = self._plan.step(self._position, self.size, self._ahead)
            parts += step.micro_batches(self.rank)
            records += len(step.share(self.rank))
            self._ahead += 1
        assert self._order is not None  # there are steps
        found = iter(_records(self._order, parts))
        self._ready.extend(list(islice(found, len(part))) for part in parts)

    def commit(self, accumulate: int) -> None:
        """The next `accumulate` batches have been used. Raises SamplerMisused where they cannot have been."""
        had = self._drawn - self._committed
        fetching = self._ahead < self._steps or self._ready
        if fetching and self._asker == threading.get_ident():
            # A loader that fetches ahead in this thread asks for one batch whenever it gives one out.
            had = min(had, self._asked)
        if had < accumulate:
            raise SamplerMisused(
                f"commit() between the batches of a step: it has {accumulate}, and {had} of them were drawn; commit "
                "once, after the optimizer step that ends it"
                if had
                else "commit() although no batch was drawn since the last commit: call it once per optimizer step"
            )
        if self._committed and not self._warned and self._asker == threading.get_ident() and self._asked > accumulate:
            self._warned = True
            warnings.warn(
                f"{self._asked} batches were drawn since the last commit(), which covers {accumulate}: the next loop "
                "repeats batches that are not committed. Call commit() once per optimizer step, and with "
                "gradient accumulation say accumulate=...",
                RuntimeWarning,
                stacklevel=4,
            )
        self._committed += accumulate
        self._asked = 0


def _records(order: Order, parts: Sequence[range]) -> list[int]:
    """The records at all these indices; beyond the end the order begins again."""
    permutation = order.permutation
    if permutation is None or permutation.n > LARGEST:
        return [record for part in parts for record in order.records(part)]
    indices = torch.cat([torch.arange(part.start, part.stop) for part in parts])
    found = permuted(permutation, indices % order.size)
    return found.tolist()  # pyright: ignore[reportUnknownMemberType, reportUnknownVariableType]  # untyped in torch


def permuted(permutation: Permutation, indices: torch.Tensor) -> torch.Tensor:
    """`permutation[index]` for each of many indices, (records,) int64: the same arithmetic on whole arrays.

    Products of signed words wrap as those of unsigned ones do; only a right shift has to be told to bring no sign.
    """
    found = indices.clone()
    todo = torch.arange(len(indices))
    while len(todo):
        number = found[todo]
        left, right = number // permutation.width, number % permutation.width
        for a, b, c, d, e, f in permutation.rounds:
            left = (left + _mixed(right, a, b, c)) % permutation.height
            right = (right + _mixed(left, d, e, f)) % permutation.width
        number = left * permutation.width + right
        found[todo] = number
        todo = todo[number >= permutation.n]
    return found


def _mixed(half: torch.Tensor, a: int, b: int, c: int) -> torch.Tensor:
    mixed = (half + _signed(a)) * _signed(b)
    return ((mixed ^ (mixed >> 32 & _LOW)) * _signed(c)) >> 32 & _LOW


def _signed(word: int) -> int:
    return word - 2**64 if word >= 2**63 else word


def _wrapped_by(kind: type[BatchSampler]) -> str:
    """What to do about a batch sampler that takes its records or batches from an `ElasticBatchSampler`."""
    if kind is BatchSampler:
        return (
            "ElasticBatchSampler yields batches, and this loader would treat them as records and make batches of "
            "batches: write DataLoader(dataset, batch_sampler=sampler), without batch_size, shuffle and drop_last"
        )
    return (
        f"{kind.__module__}.{kind.__name__} would choose among the batches that ElasticBatchSampler has chosen for "
        "this rank, and leave records out: with accelerate, do not give the loader to prepare(), and move each "
        "batch to accelerator.device; a resumed epoch needs no skip_first_batches"
    )
