"""Evaluates the state beside training: all ranks stop at the same step, evaluate what was saved there, and go on.

A rank that is lost meanwhile costs what it had not written: the state says that it is to be evaluated, and the next
round begins with that.
"""

import torch
import torch.distributed as dist
from torch import nn

from ..readers.opened import RecordFiles
from ..torch.checkpoint import Checkpoint
from ..torch.ranks import initialised
from .commands import ModelTask
from .history import Aim, Evaluated, TrainingHistory, format_table, read_aim
from .pieces import evaluate
from .saved_state import TrainingProgress, find_best, keep_best
from .training import say_once, share_numbers, tables_of
from .user_model import UserModel


class Validation:
    """See `BesideTraining`.

    Args:
        user, module: the model.
        files: what it is evaluated on.
        task: what was asked for.
        epoch: records of the training data.
    """

    def __init__(self, user: UserModel, module: nn.Module, files: RecordFiles, task: ModelTask, epoch: int) -> None:
        self._user, self._module, self._files, self._task = user, module, files, task
        self._every = task.validate_every or epoch
        self._end = task.epochs * epoch
        self._aim: Aim = read_aim(task.best)
        self._step = -1

    def is_due(self, before: int, records: int) -> bool:
        """See `BesideTraining`; the last state is evaluated when training has ended."""
        return records < self._end and records // self._every > before // self._every

    def evaluate_state(
        self, checkpoint: Checkpoint, progress: TrainingProgress, history: TrainingHistory | None
    ) -> bool:
        """See `BesideTraining`. Raises BadModel."""
        step, ended = checkpoint.step, not progress.due
        if step != self._step:  # else training was stopped by what this state has given
            if initialised():
                dist.barrier()  # pyright: ignore[reportUnknownMemberType]  # torch has no type for it; the state is there
            share_numbers(self._module)
            found = evaluate(self._user, self._module, self._files, self._task)
            self._step = step
            if history and all(each.step != step for each in history.evaluations):
                rows = progress.mark_rows(step) if tables_of(self._module) else ""
                self._add(Evaluated(step, progress.records, found), history, rows)
        if ended and history:
            self._print_end(history)
        return _is_said(not ended and history is not None and self._is_late(history))

    def _add(self, evaluated: Evaluated, history: TrainingHistory, rows: str) -> None:
        """The state of the best is kept before its line is written, so that one who is lost between does both again."""
        together = [*history.evaluations, evaluated]
        if self._aim.find_best(together) == len(together) - 1:
            keep_best(self._task.state, rows)
        history.add_evaluation(evaluated)

    def _is_late(self, history: TrainingHistory) -> bool:
        """Whether too many evaluations have followed the best one."""
        after = len(history.evaluations) - 1 - self._aim.find_best(history.evaluations)
        if not self._task.patience or after < self._task.patience:
            return False
        say_once(f"stops: the last {after} evaluations have not bettered {self._aim.name}")
        return True

    def _print_end(self, history: TrainingHistory) -> None:
        if len(history.evaluations) > 1:
            say_once(format_table(history.evaluations, self._aim))
        best = self._aim.find_best(history.evaluations)
        if best >= 0:
            step = history.evaluations[best].step
            say_once(f"{find_best(self._task.state)} has the best model, by {self._aim.name}: after step {step:,}")


def _is_said(word: bool) -> bool:
    """Whether any rank says so. Collective."""
    said = torch.tensor(int(word))
    if initialised():
        dist.all_reduce(said)  # pyright: ignore[reportUnknownMemberType]  # torch has no type for it
    return bool(said)
