"""Trains a model on leased shards: the ranks step together, and rank 0 saves the model with the position of the data.

A rank without records takes part with gradients of nothing. So the number of ranks may change at any checkpoint, and
each record is in the model once in every epoch. Rows of tables are pushed to servers, whose marks say which records
are in them; then no position is restored, because it might be another than theirs.
"""

import os
import shutil
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, cast

import torch
import torch.distributed as dist
from torch import Tensor, nn

from ..client.context import AGENT, context
from ..readers.opened import RecordFiles, RecordShard, RecordShards
from ..torch.checkpoint import Checkpoint, read_part
from ..torch.embedding import Embedding
from .commands import ModelTask
from .errors import BadModel
from .strategy import describe_strategy
from .user_model import UserModel, count_records


class TrainingEnd:
    """A part of the state: for how many epochs the model was trained to the end; 0: it was not."""

    def __init__(self) -> None:
        self.epochs = 0

    def state_dict(self) -> dict[str, int]:
        """See `Checkpoint`."""
        return {"epochs": self.epochs}

    def load_state_dict(self, state: Mapping[str, int]) -> None:
        """See `Checkpoint`."""
        self.epochs = state["epochs"]


class LossReport:
    """Rank 0's lines, and what callbacks are told.

    Args:
        user: the model, with its callbacks.
        every: steps from one line to the next.
    """

    def __init__(self, user: UserModel, every: int) -> None:
        self._callbacks = user.make_callbacks() if context().rank == 0 else []
        self._every = every
        self._loss = self._records = 0.0
        self.trained = 0

    def add_step(self, step: int, records: float, loss: float) -> None:
        """A step of all ranks: `loss` is the sum over its records."""
        self._loss += loss
        self._records += records
        self.trained += int(records)
        if step % self._every == 0:
            self.print_report(step)

    def print_report(self, step: int) -> None:
        """Of the steps since the last time."""
        if not self._records:
            return
        report = {"step": step, "records": self.trained, "loss": self._loss / self._records}
        say_once(f"step {step}: loss {report['loss']:.4f}, {self.trained:,} records in this run")
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


def tables_folder(state: Path) -> Path:
    """Where the rows of a trained model are, beside its state."""
    return state.with_name(state.name + ".tables")


def is_trained(state: Path) -> bool:
    """Whether there is a model that was trained to the end. Raises BadCheckpoint."""
    return state.exists() and bool(read_part(state, "end")[1]["epochs"])


def put_exported(state: Path) -> None:
    """Gives this process's tables the rows that training has written at its end. Raises BadModel."""
    from ..servers.session import session  # here: it loads numba, and only models with tables have that

    folder = tables_folder(state)
    if not folder.is_dir():
        raise BadModel(f"there is no folder {folder}, which training writes at its end: train to the end first")
    session().put_exported(folder)


def train(user: UserModel, module: nn.Module, files: RecordFiles, task: ModelTask) -> None:
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
    end = TrainingEnd()
    parts: dict[str, Any] = {"model": module, "end": end}  # Any: see `Checkpoint`
    parts |= {"optimizer": optimizer} if optimizer else {}
    parts |= {"schedule": schedule} if schedule else {}
    parts |= {"features": user.features} if user.features else {}
    parts |= {} if tables else {"data": data}
    # Tables of this process end with it, so that what is half trained could not be gone on with.
    every = sys.maxsize if tables and not launched else task.save_every
    checkpoint = Checkpoint(task.state, every=every, **parts)
    if not tables or is_trained(task.state) or _has_rows(task):
        _restore(checkpoint, task)
    if end.epochs and (end.epochs >= task.epochs or tables):
        _check_end(end, task, tables)
        if tables:
            put_exported(task.state)
    else:
        _share_first_numbers(module)
        torch.manual_seed(task.seed + checkpoint.step * here.world_size + here.rank + 1)  # pyright: ignore[reportUnknownMemberType]  # as above
        report = LossReport(user, task.report_every)
        _step_to_end(user, module, StepParts(data, checkpoint, report, optimizer, schedule), task)
        report.print_report(checkpoint.step)
        if tables and here.rank == 0:
            _export(task.state)
        end.epochs = task.epochs
        checkpoint.save()
        say_once(
            f"trained on {len(files):,} records for {task.epochs} epoch{'s' if task.epochs > 1 else ''}, in "
            f"{checkpoint.step:,} steps: {task.state} has the model"
        )
    if here.world_size > 1:
        dist.barrier()  # pyright: ignore[reportUnknownMemberType]  # as above; the file is there for all
        dist.destroy_process_group()


class StepParts:
    """What a step has to do with."""

    def __init__(
        self,
        data: RecordShards,
        checkpoint: Checkpoint,
        report: LossReport,
        optimizer: torch.optim.Optimizer | None,
        schedule: Any,  # Any: as `UserModel.make_schedule`
    ) -> None:
        self.data, self.checkpoint, self.report = data, checkpoint, report
        self.optimizer, self.schedule = optimizer, schedule


def _step_to_end(user: UserModel, module: nn.Module, steps: StepParts, task: ModelTask) -> None:
    module.train()
    parameters = [each for each in module.parameters() if each.requires_grad]
    own = batches(steps.data, task.batch_size)
    while True:
        batch, count, loss = next(own, None), 0, torch.zeros(())
        for each in parameters:
            each.grad = None
        if batch:
            shard, begin, end = batch
            columns = shard.read(begin, end)
            if count := count_records(columns):  # else all of them are bad rows
                fed = user.feed(columns)
                loss = user.compute_loss(user.compute_output(module, fed.inputs), fed.labels)
                loss.backward()  # pyright: ignore[reportUnknownMemberType]  # torch has no type for it
        busy, records, summed = add_up(parameters, count, float(loss.detach()), busy=batch is not None)
        if not busy:
            return  # the same step for every rank
        if steps.optimizer and records:
            steps.optimizer.step()
            if steps.schedule:
                steps.schedule.step()
        if batch:
            shard, _, end = batch
            shard.progress(end)  # pushes the gradients of tables, too
        steps.checkpoint.commit()
        steps.report.add_step(steps.checkpoint.step, records, summed)


def batches(data: RecordShards, size: int) -> Iterator[tuple[RecordShard, int, int]]:
    """A shard, and which of its records are the next batch."""
    for shard in data:
        for begin in range(0, len(shard), size):
            yield cast(RecordShard, shard), begin, min(begin + size, len(shard))


def add_up(parameters: Sequence[nn.Parameter], count: int, loss: float, *, busy: bool) -> tuple[float, float, float]:
    """Makes each gradient the mean over the records of all ranks. Collective.

    A parameter that has no gradient on any rank has none afterwards.

    Args:
        parameters: with the gradients of a mean over `count` records.
        loss: that mean.
        busy: this rank has a batch, if of bad rows only.

    Returns:
        how many ranks are busy, how many records they have together, and the sum of the losses of these.
    """
    if not (dist.is_available() and dist.is_initialized()):
        return float(busy), float(count), loss * count
    parts = [
        (torch.zeros_like(each) if each.grad is None else each.grad.detach() * count).reshape(-1) for each in parameters
    ]
    there = [float(each.grad is not None) for each in parameters]
    together = torch.cat([*parts, torch.tensor([*there, float(busy), float(count), loss * count])])
    dist.all_reduce(together)  # pyright: ignore[reportUnknownMemberType]  # torch has no type for it
    ranks, records, losses = (float(each) for each in together[-3:])
    flags, begin = together[-3 - len(there) : -3], 0
    for each, flag in zip(parameters, flags, strict=True):
        gradient = together[begin : begin + each.numel()] / max(records, 1.0)
        begin += each.numel()
        each.grad = gradient.view_as(each).to(each.dtype) if flag else None
    return ranks, records, losses


def _has_rows(task: ModelTask) -> bool:
    """Whether a model with tables goes on: without the rows that were trained with it, its state is half a model.

    Collective. Says it where there is a state and no row.
    """
    from ..servers.session import session  # here: it loads numba, and only models with tables have that

    found = torch.tensor(session().rows_found)
    if dist.is_initialized():
        dist.all_reduce(found)  # pyright: ignore[reportUnknownMemberType]  # torch has no type for it
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


def _check_end(end: TrainingEnd, task: ModelTask, tables: Sequence[str]) -> None:
    """Says that there is nothing to do. Raises BadModel where that is not what was asked for."""
    if tables and end.epochs < task.epochs:
        raise BadModel(
            f"{task.state} was trained for {end.epochs} of {task.epochs} epochs, and a model with tables cannot be "
            "trained on: remove it, or name another file with --state, to train from the beginning"
        )
    say_once(
        f"{task.state} is trained to the end already: to train anew remove it, or name another file with --state; to "
        "train on give more --epochs"
    )


def _export(state: Path) -> None:
    from ..servers.export import export_tables  # here: it loads numba, and only models with tables have that

    folder = tables_folder(state)
    if folder.exists():
        shutil.rmtree(folder)
    export_tables(folder)


def _share_first_numbers(module: nn.Module) -> None:
    """Rank 0's are everybody's, also where `forward()` has drawn them otherwise than by torch. Collective."""
    if dist.is_available() and dist.is_initialized():
        for each in (*module.parameters(), *module.buffers()):
            tensor: Tensor = each.data
            dist.broadcast(tensor, 0)  # pyright: ignore[reportUnknownMemberType]  # torch has no type for it
