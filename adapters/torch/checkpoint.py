"""One file that holds the model and the position of the data together: what rank 0 writes and every rank restores.

A position is right only with the model of the same step. So they are taken between the same two optimizer steps, and
are in one file that is replaced in one move: a reader sees the file before or the file after, and nothing between them.
"""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

import torch

from ..client.checkpoints import BadCheckpoint, SavedEvery, checked, differ, sync_directory
from ..client.current_round import is_current_round
from ..client.shards import Shards
from .leased_batches import ElasticIterableDataset, ElasticLoader
from .ranks import gathered, initialised, rank_and_size
from .tree import leaves

__all__ = ["BadCheckpoint", "Checkpoint"]

FORMAT = "elastic_run.torch.Checkpoint"
VERSION = 1


@runtime_checkable
class Stateful(Protocol):
    """A part of a checkpoint, as torch's modules, optimizers and schedulers are."""

    def state_dict(self) -> Any: ...  # Any: what each part has as its state

    def load_state_dict(self, state_dict: Any, /) -> Any: ...


class Checkpoint(SavedEvery):
    """Saves and restores the model and the position of the data together, in one file.

        data = elastic_run.data.shards("train", len(dataset), shard_size=1024, epochs=10)
        checkpoint = Checkpoint("run.pt", every=100, model=model, optimizer=optimizer, data=data)
        checkpoint.restore()                # on every rank, before the first shard
        ...
            optimizer.step()
            shard.progress(count)
            checkpoint.commit()             # on every rank, once after every optimizer step
        checkpoint.save()                   # on every rank, at the end

    Rank 0 writes the file, under another name first; every rank reads it, so it must be where all can read it.

    Args:
        path: of the file.
        every: steps from one save to the next.
        parts: what is saved, each under its name: a model that is the same on every rank, an optimizer, a scheduler,
            leased shards or a loader of them, an `ElasticBatchSampler`; whatever has `state_dict()` and
            `load_state_dict()` with values that `torch.load(weights_only=True)` can read.

    Raises:
        TypeError: an argument is of the wrong type.
        ValueError: `every` is below 1, or there are no parts.
    """

    def __init__(self, path: str | os.PathLike[str], *, every: int, **parts: Stateful) -> None:
        super().__init__(path, every)
        if not parts:
            raise ValueError("a Checkpoint of no parts: name them, model=model, optimizer=optimizer, data=data")
        for name, part in parts.items():
            if not isinstance(part, Stateful):  # pyright: ignore[reportUnnecessaryIsInstance]  # scripts are not typed
                raise TypeError(
                    f"{name}={type(part).__name__} cannot be a part of a Checkpoint: it has no state_dict() and "
                    "load_state_dict()"
                )
        self._parts: dict[str, Any] = dict(parts)
        self._read_back = False

    def restore(self) -> bool:
        """Gives each part its state of the last save. On every rank, before the first shard or batch.

        Returns:
            whether there was a checkpoint; without one, nothing is changed.

        Raises:
            elastic_run.exceptions.BadCheckpoint: the file is no checkpoint of these parts, or the ranks found
                different ones.
            elastic_run.exceptions.BadShardsState: its position is of another dataset.
            elastic_run.exceptions.BadSamplerState: the same, with an `ElasticBatchSampler`.
        """
        rank, _ = rank_and_size()
        found = None
        if self._path.exists():
            found = checked(_read(self._path), self._path, "file", (FORMAT, VERSION), self._parts)
        step = found["step"] if found else 0
        self._compare(step)
        if rank == 0:  # of ranks 0 that were lost while they wrote
            for left in self._path.parent.glob(f".{self._path.name}.*.part"):
                left.unlink(missing_ok=True)
        if not found:
            return False
        for name, part in self._parts.items():
            part.load_state_dict(found["parts"][name])
        self._step = self._saved = step
        return True

    def save(self) -> None:
        """Saves all parts now. Collective where a part is leased shards: every rank calls it after the same step.

        Rank 0 does not replace the file where the job is in another round: its launcher ends it.

        Raises:
            elastic_run.exceptions.BadCheckpoint: a part's state cannot be read again, or is in pieces on several ranks.
            elastic_run.exceptions.ShardsRefused: the ranks are at different steps.
            elastic_run.exceptions.RoundOver: the job is in another round.
            OSError: the file cannot be written.
        """
        rank, _ = rank_and_size()
        positions = {name: part.state_dict(self._step) for name, part in self._parts.items() if _is_leased(part)}
        self._saved = self._step
        if rank:
            return
        parts = {
            name: positions[name] if name in positions else part.state_dict() for name, part in self._parts.items()
        }
        for name, state in parts.items():
            if kind := next(
                (type(each).__name__ for each in leaves(state) if type(each).__name__ in ("DTensor", "ShardedTensor")),
                None,
            ):
                raise BadCheckpoint(
                    f"the part {name!r} has a {kind}, of which each rank has a piece, and rank 0 writes this file "
                    "alone: use torch.distributed.checkpoint, and save data.state_dict(step) with it"
                )
        self._write({"format": FORMAT, "version": VERSION, "step": self._step, "parts": parts})

    def _write(self, content: Mapping[str, Any]) -> None:
        new = self._path.with_name(f".{self._path.name}.{os.getpid()}.part")
        try:
            with new.open("wb") as file:
                torch.save(content, file)
                file.flush()
                os.fsync(file.fileno())
            if not self._read_back:  # once: what cannot be read again is to fail now, and not after the first fault
                _read(new)
                self._read_back = True
            if is_current_round():
                new.replace(self._path)
                sync_directory(self._path.parent)
        finally:
            new.unlink(missing_ok=True)

    def _compare(self, step: int) -> None:
        _, size = rank_and_size()
        if size == 1 or not initialised():
            return
        if text := differ([each for (each,) in gathered([step], size)], str(self._path)):
            raise BadCheckpoint(text)


def _is_leased(part: object) -> bool:
    return isinstance(part, Shards | ElasticIterableDataset | ElasticLoader)


def _read(path: Path) -> object:
    """Raises BadCheckpoint."""
    try:
        return torch.load(path, map_location="cpu", weights_only=True)
    except OSError:
        raise
    except Exception as error:  # torch names no errors, and raises whatever its reader did
        reason = str(error).strip().splitlines()
        raise BadCheckpoint(
            f"{path} cannot be read with weights_only=True: it is damaged, or a part has more in its state than "
            f"tensors and plain values ({reason[0] if reason else type(error).__name__})"
        ) from error
