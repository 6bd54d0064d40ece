"""Trains a model on leased shards: the ranks step together, and rank 0 saves the model with the position of the data.

A rank without records takes part with gradients of nothing. So the number of ranks may change at any checkpoint, and
each record is in the model once in every epoch. Rows of tables are pushed to servers, whose marks say which records
are in them; then no position is restored, because it might be another than theirs.
"""

import os
import sys
from collections.abc import Iterator, Sequence
from typing import Any, Protocol

import torch
import torch.distributed as dist
from torch import Tensor, nn

from ..client.context import AGENT, context
from ..readers.opened import RecordFiles, RecordShard, RecordShards
from ..torch.checkpoint import Checkpoint
from ..torch.embedding import Embedding
from ..torch.ranks import initialised
from .commands import ModelTask
from .errors import BadModel
from .history import TrainingHistory
from .saved_state import TrainingProgress, beside, export_rows, is_trained, put_exported, read_progress
from .strategy import describe_strategy
from .user_model import UserModel, count_records


class BesideTraining(Protocol):
    """What is done with a state while the model is trained."""

    def is_due(self, before: int, records: int) -> bool:
        """Whether to do it once so many records were used, and no longer only `before`."""
        ...

    def evaluate_state(
        self, checkpoint: Checkpoint, progress: TrainingProgress, history: TrainingHistory | None
    ) -> bool:
        """Evaluates the state that was just saved, and is the module's. Collective. Whether training is to stop."""
        ...


class LossReport:
    """Rank 0's lines, and what callbacks are told.

    Args:
        user: the model, with its callbacks.
        every: steps from one line to the next.
        history: gets the same; None: of another rank.
    """

    def __init__(self, user: UserModel, every: int, history: TrainingHistory | None) -> None:
        self._callbacks = user.make_callbacks() if context().rank == 0 else []
        self._every = every
        self.history = history
        self._loss = self._records = 0.0
        self.trained = 0

    def add_step(self, step: int, used: int, records: float, loss: float) -> None:
        """A step of all ranks: `loss` is the sum over its records, and `used` were used with those of steps before."""
        self._loss += loss
        self._records += records
        self.trained += int(records)
        if step % self._every == 0:
            self.print_report(step, used)

    def print_report(self, step: int, used: int) -> None:
        """Of the steps since the last time."""
        if not self._records:
            return
        report = {"step": step, "records": self.trained, "loss": self._loss / self._records}
        say_once(f"step {step}: loss {report['loss']:.4f}, {self.trained:,} records in this run")
        if self.history:
            self.history.add_training(step, used, report["loss"])
        for each in self._callbacks:
            each(report)
        self._loss = self._records = 0.0


def say_once(text: str) -> None:
    """A line of rank 0's."""
    if context().rank == 0:
        print(text, flush=True)


def tables_of(module: nn.Module) -> list[str]:
    """The names of its tables."""
    return list(dict.fromkeys(each.spec.name for each in module.modules() if isinstance(each, Embedding)))


def train(
    user: UserModel,
    module: nn.Module,
    files: RecordFiles,
    task: ModelTask,
    beside_training: BesideTraining | None = None,
) -> None:
    """Trains `module` to the end, and saves it. Collective. Raises BadModel."""
    here, launched = context(), AGENT in os.environ
    if here.world_size > 1:
        dist.init_process_group("gloo")  # pyright: ignore[reportUnknownMemberType]  # torch has no type for it
    tables = tables_of(module)
    parameters = [each for each in module.parameters() if each.requires_grad]
    if not tables and not parameters:
        raise BadModel(f"{task.model}: the module of forward() has nothing to train: it has no parameters")
    numbers = sum(each.numel() for each in parameters)
    say_once(f"training {describe_strategy(here.world_size, numbers, tables, launched=launched)}")
    optimizer = user.make_optimizer(parameters) if parameters else None
    schedule = user.make_schedule(optimizer) if optimizer else None
    name = "train"
    data = files.shards(name, shard_size=task.shard_size, epochs=task.epochs, seed=task.seed)
    progress = TrainingProgress()
    parts: dict[str, Any] = {"model": module, "progress": progress}  # Any: see `Checkpoint`
    parts |= {"optimizer": optimizer} if optimizer else {}
    parts |= {"schedule": schedule} if schedule else {}
    parts |= {"features": user.features} if user.features else {}
    parts |= {} if tables else {"data": data}
    # Tables of this process end with it, so that what is half trained could not be gone on with.
    every = sys.maxsize if tables and not launched else task.save_every
    checkpoint = Checkpoint(task.state, every=every, **parts)
    trained = is_trained(task.state, task.epochs)
    if not tables or trained or _has_rows(task):
        _restore(checkpoint, task)
    history = None
    if here.rank == 0:
        history = TrainingHistory(beside(task.state, "history.jsonl"), beside(task.state, "events"), checkpoint.step)
    if trained:
        say_once(
            f"{task.state} is trained to the end already: to train anew remove it, or name another file with --state; "
            "to train on give more --epochs"
        )
        if tables:
            put_exported(task.state)
    else:
        progress.epochs = 0
        share_numbers(module)
        torch.manual_seed(task.seed + checkpoint.step * here.world_size + here.rank + 1)  # pyright: ignore[reportUnknownMemberType]  # as above
        report = LossReport(user, task.report_every, history)
        steps = StepParts(data, checkpoint, progress, report, optimizer, schedule)
        if not (progress.due and beside_training and beside_training.evaluate_state(checkpoint, progress, history)):
            _step_to_end(user, module, steps, task, beside_training)
        report.print_report(checkpoint.step, progress.records)
        if tables and here.rank == 0:
            export_rows(task.state, progress.mark_rows(checkpoint.step))
        progress.epochs, progress.due = task.epochs, False
        checkpoint.save()
        data.close()  # it may have stopped early
        say_once(
            f"trained with {progress.records:,} records, {len(files):,} in each epoch, in {checkpoint.step:,} steps: "
            f"{task.state} has the model"
        )
    if here.world_size > 1:
        dist.barrier()  # pyright: ignore[reportUnknownMemberType]  # as above; the file is there for all
    if beside_training:
        beside_training.evaluate_state(checkpoint, progress, history)
    if here.world_size > 1:
        dist.destroy_process_group()


class StepParts:
    """What a step has to do with."""

    def __init__(
        self,
        data: RecordShards,
        checkpoint: Checkpoint,
        progress: TrainingProgress,
        report: LossReport,
        optimizer: torch.optim.Optimizer | None,
        schedule: Any,  # Any: as `UserModel.make_schedule`
    ) -> None:
        self.data, self.checkpoint, self.progress, self.report = data, checkpoint, progress, report
        self.optimizer, self.schedule = optimizer, schedule


def _step_to_end(
    user: UserModel, module: nn.Module, steps: StepParts, task: ModelTask, beside_training: BesideTraining | None
) -> None:
    parameters = [each for each in module.parameters() if each.requires_grad]
    own = batches(steps.data, task.batch_size)
    while True:
        module.train()
        batch, taken, count, loss = next(own, None), 0, 0, torch.zeros(())
        for each in parameters:
            each.grad = None
        if batch:
            shard, begin, end = batch
            columns, taken = shard.read(begin, end), end - begin
            if count := count_records(columns):  # else all of them are bad rows
                fed = user.feed(columns)
                loss = user.compute_loss(user.compute_output(module, fed.inputs), fed.labels)
                loss.backward()  # pyright: ignore[reportUnknownMemberType]  # torch has no type for it
        used, records, summed = add_up(parameters, taken, count, float(loss.detach()))
        if not used:
            return  # the same step for every rank
        if steps.optimizer and records:
            steps.optimizer.step()
            if steps.schedule:
                steps.schedule.step()
        if batch:
            shard, _, end = batch
            shard.progress(end)  # pushes the gradients of tables, too
        checkpoint, progress = steps.checkpoint, steps.progress
        before, progress.records = progress.records, progress.records + used
        progress.due = beside_training is not None and beside_training.is_due(before, progress.records)
        saved = checkpoint.commit()
        steps.report.add_step(checkpoint.step, progress.records, records, summed)
        if beside_training and progress.due:
            if not saved:
                checkpoint.save()
            if beside_training.evaluate_state(checkpoint, progress, steps.report.history):
                return


def batches(data: RecordShards, size: int) -> Iterator[tuple[RecordShard, int, int]]:
    """A shard, and which of its records are the next batch."""
    for shard in data:
        for begin in range(0, len(shard), size):
            yield shard, begin, min(begin + size, len(shard))  # pyrefly: ignore  # a `RecordShard`


def add_up(parameters: Sequence[nn.Parameter], taken: int, count: int, loss: float) -> tuple[int, float, float]:
    """Makes each gradient the mean over the records of all ranks. Collective.

    A parameter that has no gradient on any rank has none afterwards.

    Args:
        parameters: with the gradients of a mean over `count` records.
        taken: records of this rank's batch, bad rows included; 0: it has none.
        count: those of them that are no bad rows.
        loss: their mean.

    Returns:
        how many records all ranks have taken, how many of these are no bad rows, and the sum of their losses.
    """
    if not initialised():
        return taken, float(count), loss * count
    parts = [
        (torch.zeros_like(each) if each.grad is None else each.grad.detach() * count).reshape(-1) for each in parameters
    ]
    there = [float(each.grad is not None) for each in parameters]
    together = torch.cat([*parts, torch.tensor([*there, float(taken), float(count), loss * count])])
    dist.all_reduce(together)  # pyright: ignore[reportUnknownMemberType]  # torch has no type for it
    used, records, losses = (float(each) for each in together[-3:])
    flags, begin = together[-3 - len(there) : -3], 0
    for each, flag in zip(parameters, flags, strict=True):
        gradient = together[begin : begin + each.numel()] / max(records, 1.0)
        begin += each.numel()
        each.grad = gradient.view_as(each).to(each.dtype) if flag else None
    return int(used), records, losses


def _has_rows(task: ModelTask) -> bool:
    """Whether a model with tables goes on: without the rows that were trained with it, its state is half a model.

    Collective. Says it where there is a state and no row. Raises BadModel where that is a whole model.
    """
    from ..servers.session import session  # here: it loads numba, and only models with tables have that

    found = torch.tensor(session().rows_found)
    if dist.is_initialized():
        dist.all_reduce(found)  # pyright: ignore[reportUnknownMemberType]  # torch has no type for it
    if not int(found) and is_trained(task.state):
        raise BadModel(
            f"{task.state} was trained for {read_progress(task.state)[1].epochs} of {task.epochs} epochs, and its "
            "tables are needed as servers had them: to train on give the job's --rdzv-id and --ps-checkpoint=FOLDER, "
            "with which it was trained; else remove it, or name another file with --state"
        )
    if not int(found) and task.state.exists():
        say_once(
            f"{task.state} is there, and the rows of its tables have gone with their servers: begins anew. With "
            "--ps-checkpoint=FOLDER they would be kept"
        )
    return bool(found)


def _restore(checkpoint: Checkpoint, task: ModelTask) -> None:
    try:
        if checkpoint.restore():
            say_once(f"{task.state} is there: goes on after step {checkpoint.step:,}")
    except (RuntimeError, KeyError, TypeError) as error:  # torch's own, of modules and optimizers
        reason = " ".join(str(error).split())[:300]
        raise BadModel(
            f"{task.state} is of another model or optimizer than {task.model} has now: remove it, or name another "
            f"file with --state ({reason})"
        ) from None


def share_numbers(module: nn.Module) -> None:
    """Rank 0's are everybody's: where `forward()` has not drawn them by torch, and averages of batches. Collective."""
    if initialised():
        for each in (*module.parameters(), *module.buffers()):
            tensor: Tensor = each.data
            dist.broadcast(tensor, 0)  # pyright: ignore[reportUnknownMemberType]  # torch has no type for it
