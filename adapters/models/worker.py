"""What each worker of such a job runs, and a model file that is started by itself."""

import os
import sys
import traceback
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from ...master.data.shard import BadDataset, BadShardsState
from ..client.checkpoints import BadCheckpoint
from ..client.context import AGENT
from ..features.errors import BadFeatures
from ..readers.errors import BadFiles, BadRecords
from ..readers.opened import RecordFiles, open_files
from ..servers.errors import TableMisused
from ..servers.table_source import keep_tables_here
from .commands import ModelTask, check_task, read_task
from .errors import BadModel

if TYPE_CHECKING:
    from torch import nn

    from .user_model import UserModel

UNFIT = (BadCheckpoint, BadFeatures, BadModel, BadFiles, BadRecords, BadDataset, BadShardsState, TableMisused)
"""What each start would meet again: told in one sentence, with the exit code by which the launcher knows that."""


def run(words: Sequence[str], script: object = None) -> None:
    """Does what the words ask for.

    Args:
        words: train, evaluate, predict or export, the model's file, and flags.
        script: the module that is the model, where it runs itself and is not named in the words.

    Raises SystemExit where that cannot be done, once it is told why.
    """
    try:
        own = os.path.relpath(str(getattr(script, "__file__", ""))) if script else ""
        task = read_task(words, script=own)
        check_task(task)
        _do(task, script)
    except UNFIT as error:
        if cause := error.__cause__:
            traceback.print_exception(cause)
        sentence = " ".join(str(error).split())
        print(f"elastic-run {words[0] if words else ''}: error: {sentence}", file=sys.stderr, flush=True)
        raise SystemExit(2) from None


def _do(task: ModelTask, script: object) -> None:
    from .pieces import evaluate, predict  # here, and below: they load torch
    from .saved_state import is_trained
    from .training import say_once, train
    from .user_model import load_model, model_of
    from .validation import Validation

    if AGENT not in os.environ or task.verb != "train" or is_trained(task.state, task.epochs):
        keep_tables_here()  # servers that this job may have know nothing of what was trained before
    user = model_of(script, task.model) if script else load_model(task.model)
    if task.verb == "export":
        _export(user, task)
        return
    files = _open(task, task.data)
    if user.features:
        if task.verb != "train" or task.state.exists():
            user.features.read_state(task.state)
        else:
            user.features.fit(files, task)
    module = user.make_module(task.seed)
    if task.verb == "train":
        validated = _open(task, task.validate) if task.validate else None
        train(user, module, files, task, Validation(user, module, validated, task, len(files)) if validated else None)
        return
    step = _load_state(module, task.state)
    say_once(f"{task.state} has the model after step {step:,}")
    (evaluate if task.verb == "evaluate" else predict)(user, module, files, task)


def _export(user: "UserModel", task: ModelTask) -> None:
    from .exporting import export_model  # here: it loads torch

    if not user.features:
        raise BadModel(
            f"{task.model} has its own feed(), which needs more than torch: declare features instead, and export then"
        )
    user.features.read_state(task.state)
    module = user.make_module(task.seed)
    _load_state(module, task.state)
    export_model(user, module, task)


def _open(task: ModelTask, paths: Sequence[str]) -> RecordFiles:
    return open_files(paths, bad=task.bad or "fail", kinds=task.kinds)


def _load_state(module: "nn.Module", state: Path) -> int:
    """Gives the module what training has saved, and its tables their rows. The step. Raises BadModel."""
    from ..torch.checkpoint import read_part
    from .saved_state import put_exported
    from .training import tables_of

    step, weights = read_part(state, "model")
    try:
        module.load_state_dict(weights)
    except (RuntimeError, AttributeError, TypeError) as error:
        reason = " ".join(str(error).split())[:300]
        raise BadModel(f"{state} is of another model: name its own with --state ({reason})") from None
    if tables_of(module):
        put_exported(state)
    return step
