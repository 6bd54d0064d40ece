"""Model and position of the data together, in one folder: what rank 0 publishes and every rank restores.

A position is right only with the model of the same step. So they are taken between the same two steps, and are in one
folder that gets its name in one move: a reader finds the one before or the one after, and nothing between them.
"""

import json
import os
import re
import shutil
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import tensorflow

from ...rendezvous.host.lasting_files import sync_directory
from ..client.checkpoints import BadCheckpoint, SavedEvery, checked
from ..client.context import context
from ..client.current_round import is_current_round
from ..client.shards import Shards
from .dataset import ShardsDataset

__all__ = ["BadCheckpoint", "Checkpoint"]

tf: Any = tensorflow  # Any: it has no types

FORMAT = "elastic_run.tensorflow.Checkpoint"
VERSION = 1

_POSITION, _MODEL = "position.json", "model"


class Checkpoint(SavedEvery):
    """Saves and restores the model and the position of the data together.

        data = elastic_run.tensorflow.shards_dataset(source, read, batch_size=64, output_signature=...)
        checkpoint = Checkpoint("run", every=100, model=model, data=data)
        checkpoint.restore()                    # on every rank, before the first batch
        model.fit(data.distributed(strategy), callbacks=[checkpoint.callback()])

    or, in a loop of one's own, on every rank after every step: `data.commit()`, `checkpoint.commit()`; and at the end
    `checkpoint.save()`.

    Every rank takes part in a save, because TensorFlow reads some variables from all of them. Rank 0's is published, in
    a folder that all ranks must be able to read; the others' goes to a temporary folder.

    Args:
        path: a folder for these checkpoints alone. The newest is `step-N` in it, and an older one is removed.
        every: steps from one save to the next.
        parts: what is saved, each under its name: models, optimizers, variables, whatever `tf.train.Checkpoint` takes;
            and leased shards or a dataset of them. A compiled Keras model has its optimizer in it.

    Raises:
        TypeError: an argument is of the wrong type.
        ValueError: `every` is below 1, or there are no parts.
    """

    def __init__(self, path: str | os.PathLike[str], *, every: int, **parts: Any) -> None:
        super().__init__(path, every)
        if not parts:
            raise ValueError("a Checkpoint of no parts: name them, model=model, data=data")
        self._leased: dict[str, Any] = {
            name: part for name, part in parts.items() if isinstance(part, Shards | ShardsDataset)
        }
        self._names = sorted(parts)
        try:
            self._checkpoint = tf.train.Checkpoint(
                **{name: part for name, part in parts.items() if name not in self._leased}
            )
        except ValueError as error:
            raise TypeError(f"a part cannot be in a Checkpoint: {error}") from None
        self._rank = context().rank

    def restore(self) -> bool:
        """Gives each part its state of the last save. On every rank, before the first batch.

        Variables that do not exist yet get theirs when they are made.

        Returns:
            whether there was a checkpoint; without one, nothing is changed.

        Raises:
            elastic_run.exceptions.BadCheckpoint: the folder has no checkpoint of these parts.
            elastic_run.exceptions.BadShardsState: its position is of another dataset.
        """
        found = self._newest()
        if found is None:
            return False
        held = self._read(found)
        try:
            self._checkpoint.read(str(found / _MODEL)).assert_existing_objects_matched()
        except (AssertionError, ValueError, tf.errors.OpError) as error:
            reason = str(error).strip().splitlines() or [type(error).__name__]
            raise BadCheckpoint(f"{found} is not of this model, or is damaged: {reason[0]}") from error
        for name, part in self._leased.items():
            part.load_state_dict(held["positions"][name])
        self._step = self._saved = held["step"]
        return True

    def save(self) -> None:
        """Saves all parts now. Collective: every rank calls it after the same step.

        Rank 0 publishes nothing where the job is in another round: its launcher ends it.

        Raises:
            elastic_run.exceptions.ShardsRefused: the ranks are at different steps.
            elastic_run.exceptions.RoundOver: the job is in another round.
            OSError: the folder cannot be written.
        """
        positions = {name: part.state_dict(self._step) for name, part in self._leased.items()}
        self._saved = self._step
        if self._rank:
            with tempfile.TemporaryDirectory(prefix="elastic-run-") as aside:
                self._checkpoint.write(f"{aside}/{_MODEL}")
            return
        self._path.mkdir(parents=True, exist_ok=True)
        new = self._path / f".step-{self._step}.{os.getpid()}.part"
        shutil.rmtree(new, ignore_errors=True)
        try:
            new.mkdir()
            self._checkpoint.write(str(new / _MODEL))
            content = {"format": FORMAT, "version": VERSION, "step": self._step, "parts": self._names}
            (new / _POSITION).write_text(json.dumps({**content, "positions": positions}))
            for file in new.iterdir():
                with file.open("rb") as opened:
                    os.fsync(opened.fileno())
            sync_directory(new)
            if is_current_round():
                self._publish(new)
        finally:
            shutil.rmtree(new, ignore_errors=True)

    def callback(self) -> Any:
        """For Keras's `fit`: commits the data and counts the step after each batch, and saves at the end.

        `fit` must run one step at a time (`steps_per_execution=1`, the default): a save lies between two steps.
        """
        checkpoint = self

        class Callback(tf.keras.callbacks.Callback):
            def on_train_begin(self, logs: Any = None) -> None:
                check_single_steps(self.model, "a checkpoint of model and position lies between two steps")

            def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
                checkpoint._stepped()

            def on_train_end(self, logs: Any = None) -> None:
                if checkpoint._saved != checkpoint._step:
                    checkpoint.save()

        return Callback()

    def _stepped(self) -> None:
        for part in self._leased.values():
            if isinstance(part, ShardsDataset):
                part.commit()
        self.commit()

    def _publish(self, new: Path) -> None:
        final = self._path / f"step-{self._step}"
        older = [folder for folder in self._path.glob("step-*") if folder != final]
        if final.exists():  # of a run that has got here, and whose data were told to begin anew
            final.rename(self._path / f".old.{os.getpid()}.part")
        new.rename(final)
        sync_directory(self._path)
        for folder in (*older, *self._path.glob(".*.part")):  # the last: of ranks 0 that were lost while they wrote
            shutil.rmtree(folder, ignore_errors=True)

    def _newest(self) -> Path | None:
        found = [
            (int(match[1]), folder)
            for folder in self._path.glob("step-*")
            if (match := re.fullmatch(r"step-([0-9]+)", folder.name))
        ]
        return max(found)[1] if found else None

    def _read(self, folder: Path) -> Mapping[str, Any]:
        try:
            found: object = json.loads((folder / _POSITION).read_text())
        except (OSError, ValueError) as error:
            raise BadCheckpoint(f"{folder} is no checkpoint, or is damaged: {error}") from error
        return checked(found, folder, "folder", (FORMAT, VERSION), self._names)


def check_single_steps(model: Any, why: str) -> None:
    """Raises ValueError where Keras's `fit` makes several steps of this model at a time."""
    legacy = getattr(model, "_steps_per_execution", None)
    given = getattr(model, "steps_per_execution", 1) if legacy is None else legacy
    if (steps := int(tf.convert_to_tensor(given))) != 1:
        raise ValueError(f"steps_per_execution={steps}: {why}: compile the model with steps_per_execution=1")
