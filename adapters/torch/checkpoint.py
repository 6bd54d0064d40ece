"""One file that holds the model and the position of the data together: what rank 0 writes and every rank restores.

A position is right only with the model of the same step. So they are taken between the same two optimizer steps, and
are in one file that is replaced in one move: a reader sees the file before or the file after, and nothing between them.

With `memory`, the same is also kept in memory that outlives the workers (`memory_copies.py`), and the file is for the
loss of that.
"""

import contextlib
import os
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal, Protocol, runtime_checkable

import torch

from ...rendezvous.host.lasting_files import sync_directory
from ..client.checkpoints import BadCheckpoint, SavedEvery, checked, differ, steps_of
from ..client.context import AGENT, context
from ..client.copy_pace import AUTO, CopyPace
from ..client.current_round import current_run, is_current_round
from ..client.memory_choice import SavedFile, mark_run
from ..client.shards import Shards
from .leased_batches import ElasticIterableDataset, ElasticLoader
from .memory_copies import MemoryCopies, say_in_job
from .part_kinds import has_parameters, is_in_pieces
from .ranks import gather_rows, gathered, initialised, rank_and_size
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
        every: steps from one save to the next; None, with `memory`: steps alone save nothing.
        memory: steps from one copy into memory to the next, or "auto": as few as let copies take at most 3 % of the
            time. Each node holds two, which outlive its workers, and `restore` takes the newest that is whole, or the
            file where that is newer. They end with the job, and a node's with its machine. A model in pieces (FSDP2)
            is kept, too, by its ranks' shards. None: no copies.
        persist_every: seconds after which the next copy into memory also saves the file; None: it does not.
        parts: what is saved, each under its name: a model that is the same on every rank, an optimizer, a scheduler,
            leased shards or a loader of them, an `ElasticBatchSampler`; whatever has `state_dict()` and
            `load_state_dict()` with values that `torch.load(weights_only=True)` can read.

    Raises:
        TypeError: an argument is of the wrong type.
        ValueError: `every` or `memory` is below 1, `persist_every` is not above 0, or there are no parts.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        every: int | None = None,
        memory: int | Literal["auto"] | None = None,
        persist_every: float | None = None,
        **parts: Stateful,
    ) -> None:
        self._by_steps = every is not None or memory is None
        super().__init__(path, every if self._by_steps else 1)
        self._pace = CopyPace() if memory == AUTO else None
        self._memory = 1 if memory == AUTO else None if memory is None else steps_of("memory", memory)
        self._copied_at = 0.0  # with "auto": when the last copy was done
        self._paced_round = 0
        if persist_every is not None and (memory is None or persist_every <= 0):
            raise ValueError(f"persist_every={persist_every} is a number of seconds above 0, and goes with memory=...")
        self._persist_every = persist_every
        self._persisted = time.monotonic()
        self._copies: MemoryCopies | None = None
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
        self._in_pieces: bool | None = None
        if memory is not None:
            self._copies = self._open_memory()

    def commit(self) -> bool:
        """Counts a step of the optimizer, and keeps it. On every rank, after each step.

        A step that is due for a copy into memory is in that of every node when this returns on any rank.

        Returns:
            whether it has saved the file.

        Raises:
            elastic_run.exceptions.BadCheckpoint: the ranks are at different steps, a node has no room for `memory`, or
                as `save`.
            elastic_run.exceptions.ShardsRefused: as `save`.
            elastic_run.exceptions.RoundOver: the job is in another round.
            elastic_run.exceptions.AgentGone: the launcher has ended.
            OSError: the file cannot be written.
        """
        if self._memory is None:
            return super().commit()
        self._count_step()
        positions: dict[str, Any] | None = None
        due = self._by_steps and self._is_due()
        if self._is_copied():
            begun = time.monotonic()
            if self._copies is not None:
                positions = self._positions()
                in_pieces = self._is_in_pieces()
                if self._copies.is_writer() or in_pieces:
                    states = self._named_states(positions) if in_pieces else self._states(positions)
                    self._copies.write(self._step, states, in_pieces=in_pieces)
            late, copied = self._agree(begun)
            due = late or due
            if self._copies is not None:
                self._copies.settle(self._step, copied=copied)
                self._counted.told = self._copies.describe(self._step, self._memory)
        if due:
            self._save(self._positions() if positions is None else positions)
        return due

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
        kept = None
        if self._copies is not None:
            kept = self._copies.restore(self._find_file(), in_pieces=is_in_pieces(self._parts))
        if kept is not None:
            kept.load_into(self._parts)
            self._remove_unfinished()
            self._step, self._saved = kept.step, max(0, min(kept.step, kept.file.step))
            return True
        found = None
        if self._path.exists():
            found = checked(_read(self._path), self._path, "file", (FORMAT, VERSION), self._parts)
        step = found["step"] if found else 0
        self._compare(step)
        self._remove_unfinished()
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
        self._save(self._positions())

    def _save(self, positions: Mapping[str, Any]) -> None:
        rank, _ = rank_and_size()
        self._saved, self._persisted = self._step, time.monotonic()
        if rank:
            return
        content: dict[str, Any] = {"format": FORMAT, "version": VERSION, "step": self._step}
        content["parts"] = self._states(positions)
        if self._copies is not None:  # so that it can be told which is newer
            content |= {"run": current_run(), "round": context().round}
        self._write(content)

    def _positions(self) -> dict[str, Any]:
        """Of leased parts: collective."""
        return {name: part.state_dict(self._step) for name, part in self._parts.items() if _is_leased(part)}

    def _is_in_pieces(self) -> bool:
        """Whether ranks have pieces of a model, which does not change once it is trained."""
        if self._in_pieces is None:
            self._in_pieces = is_in_pieces(self._parts)
            if self._in_pieces and (self._by_steps or self._persist_every is not None):
                # Now, and not hours later, when the file is due.
                given = "every" if self._by_steps else "persist_every"
                raise BadCheckpoint(
                    f"{given}=... writes a file, and a model in pieces cannot be in it: leave {given}=... and save() "
                    "out, and use torch.distributed.checkpoint for the loss of all nodes"
                )
        return self._in_pieces

    def _named_states(self, positions: Mapping[str, Any]) -> dict[str, Any]:
        """Of all parts, tensors in pieces by their names. Raises BadCheckpoint."""
        from .named_states import named_state  # here, because it loads all of torch.distributed.checkpoint

        plain = {name: part for name, part in self._parts.items() if not has_parameters(part)}
        found = self._states(positions, plain)
        return {
            name: found[name] if name in found else named_state(part, self._parts) for name, part in self._parts.items()
        }

    def _states(self, positions: Mapping[str, Any], of: Mapping[str, Any] | None = None) -> dict[str, Any]:
        """Of these parts, or of all. Raises BadCheckpoint."""
        wanted = self._parts if of is None else of
        parts = {name: positions[name] if name in positions else part.state_dict() for name, part in wanted.items()}
        for name, state in parts.items():
            if kind := next(
                (type(each).__name__ for each in leaves(state) if type(each).__name__ in ("DTensor", "ShardedTensor")),
                None,
            ):
                raise BadCheckpoint(
                    f"the part {name!r} has a {kind}, of which each rank has a piece, and rank 0 writes this file "
                    "alone: use torch.distributed.checkpoint, and save data.state_dict(step) with it"
                )
        return parts

    def _is_copied(self) -> bool:
        """Whether this step is due for a copy into memory: the same on every rank."""
        if self._pace is None:
            return self._step % (self._memory or 1) == 0
        if self._paced_round != (round := context().round):  # others, which have just begun, copy their first step
            self._paced_round, self._pace = round, CopyPace()
        return self._pace.is_due(self._step)

    def _agree(self, begun: float) -> tuple[bool, bool]:
        """Whether to save the file now, which rank 0's clock decides; and whether copies on other nodes are done.

        Collective: every rank has this step in memory.

        Args:
            begun: when the copy was.
        """
        late = self._persist_every is not None and time.monotonic() - self._persisted >= self._persist_every
        copied = self._copies is None or self._copies.is_copied()
        now, every = time.monotonic(), self._memory or 1
        if self._pace is not None:
            every = self._pace.choose(now - begun, begun - self._copied_at)
        rows = gather_rows([self._step, int(late), int(copied), every])
        if len({row[0] for row in rows}) > 1:
            steps = ", ".join(f"rank {rank} at {row[0]}" for rank, row in enumerate(rows))
            raise BadCheckpoint(f"the ranks commit different steps ({steps}): each calls commit() once after each step")
        self._memory = rows[0][3]
        if self._pace is not None:
            self._pace, self._copied_at = CopyPace(self._memory, self._step), time.monotonic()
        return bool(rows[0][1]), all(row[2] for row in rows)

    def _open_memory(self) -> MemoryCopies | None:
        agent = os.environ.get(AGENT, "")
        if agent:
            # Workers that name the file from elsewhere, or otherwise, have the same memory.
            return MemoryCopies(os.path.abspath(self._path), agent)  # noqa: PTH100  # Path keeps what is `..`
        if rank_and_size()[0] == 0:
            say_in_job("no elastic-run around this script: Checkpoint(memory=...) keeps nothing in memory")
        return None

    def _find_file(self) -> SavedFile:
        """What this rank finds on disk, without its tensors; a file that cannot be read is told of, later."""
        with contextlib.suppress(BadCheckpoint, FileNotFoundError):
            found = checked(_read(self._path, mapped=True), self._path, "file", (FORMAT, VERSION), self._parts)
            return SavedFile(found["step"], found.get("round", 0), mark_run(found.get("run", "")))
        return SavedFile()

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

    def _remove_unfinished(self) -> None:
        """Files of ranks 0 that were lost while they wrote."""
        if rank_and_size()[0] == 0:
            for left in self._path.parent.glob(f".{self._path.name}.*.part"):
                left.unlink(missing_ok=True)

    def _compare(self, step: int) -> None:
        _, size = rank_and_size()
        if size == 1 or not initialised():
            return
        if text := differ([each for (each,) in gathered([step], size)], str(self._path)):
            raise BadCheckpoint(text)


def read_part(path: Path, name: str) -> tuple[int, Any]:  # Any: the part's own state
    """The step of a saved file, and the state of one of its parts. Raises BadCheckpoint, OSError."""
    found: Any = _read(path)
    held = checked(found, path, "file", (FORMAT, VERSION), found.get("parts", ()) if isinstance(found, dict) else ())  # pyright: ignore[reportUnknownMemberType, reportUnknownArgumentType]  # of any file
    if name not in held["parts"]:
        raise BadCheckpoint(f"{path} has no part {name!r}: it is no state of such a model")
    return held["step"], held["parts"][name]


def _is_leased(part: object) -> bool:
    return isinstance(part, Shards | ElasticIterableDataset | ElasticLoader)


def _read(path: Path, *, mapped: bool = False) -> object:
    """Raises BadCheckpoint, OSError. `mapped`: of the tensors, only what is looked at is read."""
    try:
        return torch.load(path, map_location="cpu", weights_only=True, mmap=mapped)
    except OSError:
        raise
    except Exception as error:  # torch names no errors, and raises whatever its reader did
        reason = str(error).strip().splitlines()
        raise BadCheckpoint(
            f"{path} cannot be read with weights_only=True: it is damaged, or a part has more in its state than "
            f"tensors and plain values ({reason[0] if reason else type(error).__name__})"
        ) from error
