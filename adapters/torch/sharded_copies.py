"""Shards of a checkpoint's tensors in memory that outlives the workers: each rank's own, restored at any world size.

Beside them each node holds the rest of the state (`memory_copies.py`), which names the tensors and the number of ranks.
A rank reads the rows that it needs from whichever node holds them, its own first, and writes them where they belong:
it never has more than its shards, and one bucket.
"""

import json
import zlib
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from math import prod
from mmap import mmap
from typing import Any, cast

import torch

from ...rendezvous.base.frozen import dataclass
from ...rendezvous.host.control_groups import free_memory
from ..client.checkpoints import BadCheckpoint
from ..client.context import Context
from ..client.memory_channel import (
    GENERATIONS,
    RANGE_BYTES,
    MemoryRequest,
    drop_memory,
    list_parts,
    read_memory,
    replicate_memory,
)
from ..client.memory_choice import HeldGeneration, SavedFile, mark_run
from ..client.memory_state import Generation, is_undamaged, place_tensors, read_generation, write_text
from ..client.shard_plan import (
    WHOLE,
    Box,
    HeldShards,
    PiecesMissing,
    Replication,
    StoredPiece,
    choose_reader,
    choose_shards,
    choose_targets,
    find_crowded,
    name_part,
    plan_rows,
    rank_of_part,
)
from .memory_slots import MemorySlots, compare_parts, map_part, sum_blocks
from .named_states import load_named, local_box, named_state, rename
from .part_kinds import has_parameters
from .ranks import gather_rows, gather_texts, rank_and_size
from .tree import InPieces, places, unflatten

BUCKET_BYTES = 16 << 20
"""Read at a time."""

SHARDS = "shards"
"""The one part of such a generation: which piece of which tensor lies where, as JSON."""


class ShardedCopies:
    """This rank's shards in memory, and those that this node holds.

    Args:
        holder: the checkpoint's path.
        agent: where it is.

    Attributes:
        replication: how far the copies on other nodes are, in this round.
    """

    def __init__(self, holder: str, agent: str) -> None:
        self._holder, self._agent = holder, agent
        self._round = 0
        self._part = ""
        self._slots: MemorySlots | None = None
        self._left = True  # other rounds' shards may be held here
        self._run, self._target = "", ""
        self._copying: MemoryRequest | None = None
        self.replication = Replication()

    def write(self, step: int, run: str, pieces: Sequence[tuple[str, torch.Tensor]], here: Context) -> str:
        """This rank's pieces of `step`; gives the run of the job. Collective, first in each round.

        Raises BadCheckpoint, OSError.
        """
        rank, size = rank_and_size()
        if self._slots is None or self._round != here.round:
            node, _ = list_parts(self._agent, self._holder)
            told = [json.loads(text) for text in gather_texts(json.dumps([run, node]))]
            self._compare_names(pieces)
            self._run = told[0][0]
            self._target = choose_targets([each for _, each in told]).get(node, "")
            self._round, self._left = here.round, True
            self._copying, self.replication = None, Replication()
            self._part = name_part(mark_run(self._run), here.round, rank)
            self._slots = MemorySlots(self._agent, self._holder, self._part, "of the shards of each rank")
            self._slots.map_held()
            self._compare_room(node, [each for _, each in pieces])
        tensors: list[torch.Tensor] = []
        boxes: list[tuple[str, str, list[int], list[int]]] = []
        for where, whole in pieces:
            tensor, box = local_box(whole)
            tensors.append(tensor.detach())
            boxes.append((where, str(tensor.dtype), list(box.offsets), list(box.sizes)))
        text = write_text(self._run, {SHARDS: json.dumps(boxes, separators=(",", ":"))}, size)
        self._slots.write(here.round, step, text, tensors)
        return self._run

    def is_copied(self) -> bool:
        """Whether another node holds this rank's shards of the step that is being copied. Raises BadCheckpoint."""
        return self._copying is None or replicate_memory(self._agent, self._copying)

    def settle(self, step: int, *, copied: bool, writes: bool) -> set[tuple[int, int]] | None:
        """Every rank has `step`.

        Args:
            copied: other nodes hold every rank's shards of the step that was being copied.
            writes: this rank writes for its node.

        Returns:
            round and step of what may not be overwritten; None: as before, since no step of this round is safe yet.
        """
        assert self._slots is not None
        self._slots.settle()
        before = self.replication
        if self._target:
            self.replication = before.advance(step, done=copied)
        safe, now = self.replication.safe, self.replication.copied
        kept = {(self._round, each) for each in (safe, now) if each is not None}
        self._slots.kept = kept
        if now is not None and now != before.copied:
            self._begin_copy(self._slots, now, safe)
        if self._target and safe is None:
            return None
        if self._left and writes:  # what other rounds have left is given up
            drop_shards(self._agent, self._holder, self._part)
        self._left = False
        return kept

    def _begin_copy(self, slots: MemorySlots, step: int, safe: int | None) -> None:
        by_step = {now: slot for slot, (_, now) in slots.steps.items()}
        found = read_generation(slots.buffers[by_step[step]])
        assert found is not None
        keeps = tuple(slot for now, slot in by_step.items() if now == safe)
        self._copying = MemoryRequest(
            "replicate",
            self._holder,
            by_step[step],
            self._part,
            slots=keeps,
            node=self._target,
            mark=found.mark,
            size=found.size,
        )
        replicate_memory(self._agent, self._copying)

    def _compare_room(self, node: str, pieces: Sequence[torch.Tensor]) -> None:
        """The ranks of a node take memory at the same moment, and each finds room for itself alone: told together."""
        wanted = GENERATIONS * sum(local_box(each)[0].nbytes for each in pieces)
        told = json.dumps([node, wanted, free_memory()])
        if found := find_crowded([json.loads(text) for text in gather_texts(told)]):
            crowded, wanted, left = found
            raise BadCheckpoint(
                f"memory=... holds {GENERATIONS} generations of the shards of each rank, for those of node {crowded} "
                f"{wanted / 1e6:,.1f} MB, and it, with the control groups of its workers, has {left / 1e6:,.1f} MB "
                "left: give it more memory, or leave memory=... out and use torch.distributed.checkpoint"
            )

    def _compare_names(self, pieces: Sequence[tuple[str, torch.Tensor]]) -> None:
        mark = zlib.crc32(json.dumps([(where, list(each.shape)) for where, each in pieces]).encode())
        if len({row[0] for row in gather_rows([mark])}) > 1:
            raise BadCheckpoint(
                "the ranks have pieces of different tensors, as stages of a pipeline do: memory=... keeps models of "
                "which every rank has a piece of each sharded tensor"
            )


def drop_shards(agent: str, holder: str, own: str = "") -> None:
    """Has this node give up all shards but those of the round of the part `own`. Raises BadCheckpoint, OSError."""
    for part in list_parts(agent, holder)[1]:
        if rank_of_part(part) >= 0 and part.rpartition(".")[0] != own.rpartition(".")[0]:
            drop_memory(agent, holder, part)


class HeldInventory:
    """The shards of a checkpoint that all nodes hold, at one moment, and the bytes of those that this one holds.

    Args:
        writes: this rank tells for its node.
    """

    def __init__(self, holder: str, agent: str, *, writes: bool) -> None:
        self._holder, self._agent, self._writes = holder, agent, writes
        self.node, parts = list_parts(agent, holder)
        self._buffers: dict[tuple[str, int], mmap] = {}
        self._own: dict[HeldShards, Generation] = {}
        for part in parts:
            if (rank := rank_of_part(part)) < 0:
                continue
            for slot, buffer in map_part(agent, holder, part).items():
                if found := read_generation(buffer):
                    run = mark_run(found.run)
                    held = HeldShards(
                        self.node,
                        part,
                        slot,
                        rank,
                        found.world,
                        run,
                        found.round,
                        found.step,
                        found.mark,
                        found.size,
                    )
                    self._buffers[part, slot], self._own[held] = buffer, found
        told = json.dumps([*self._own]) if writes else "[]"
        self._all = [HeldShards(*each) for text in gather_texts(told) for each in json.loads(text)]
        self._damaged: set[HeldShards] = set()

    def choose(self, wanted: HeldGeneration) -> Mapping[int, tuple[HeldShards, ...]]:
        """Undamaged shards of every rank of that step, and who holds them; empty where some are nowhere. Collective."""
        while True:
            found = choose_shards(self._all, wanted.run, wanted.round, wanted.step, wanted.world, self._damaged)
            if not found:
                return {}
            bad = [
                each
                for holders in found.values()
                for each in holders
                if self._writes and each in self._own and not self._is_undamaged(each)
            ]
            damaged = {HeldShards(*each) for text in gather_texts(json.dumps(bad)) for each in json.loads(text)}
            if not damaged:
                return found
            self._damaged |= damaged

    def read_pieces(self, chosen: Mapping[int, tuple[HeldShards, ...]]) -> dict[str, list[StoredPiece]]:
        """Of each tensor, its pieces in those shards. Collective. Raises BadCheckpoint."""
        told = {
            rank: self._own[holders[0]].parts[SHARDS]
            for rank, holders in chosen.items()
            if self._writes and holders[0].node == self.node
        }
        found: dict[str, list[StoredPiece]] = {}
        for text in gather_texts(json.dumps(told)):
            for rank, pieces in json.loads(text).items():
                listed: list[list[Any]] = json.loads(pieces)
                sizes = [_bytes_of(kind, shape) for _, kind, _, shape in listed]
                for (where, _, offsets, shape), begin in zip(listed, place_tensors(sizes)[0], strict=True):
                    piece = StoredPiece(Box(tuple(offsets), tuple(shape)), int(rank), begin)
                    found.setdefault(where, []).append(piece)
        return found

    def read(self, held: HeldShards, begin: int, end: int) -> memoryview | bytearray:
        """Bytes of what a node holds. Raises BadCheckpoint, OSError."""
        if (buffer := self._buffers.get((held.part, held.slot))) is not None and held.node == self.node:
            return memoryview(buffer)[begin:end]
        return read_remote(self._agent, self._holder, held.node, held.part, held.slot, held.mark, begin, end)

    def drop_others(self, chosen: Mapping[int, tuple[HeldShards, ...]]) -> None:
        """Has this node give up the shards of other steps: each generation that is kept costs as much memory."""
        kept = {each for holders in chosen.values() for each in holders}
        if self._writes:
            for each in self._own.keys() - kept:
                drop_memory(self._agent, self._holder, each.part, [each.slot])

    def _is_undamaged(self, held: HeldShards) -> bool:
        return is_undamaged(self._buffers[held.part, held.slot], self._own[held], sum_blocks)


def read_remote(agent: str, holder: str, node: str, part: str, slot: int, mark: int, begin: int, end: int) -> bytearray:
    """Bytes of a generation that another node holds. Raises BadCheckpoint, OSError."""
    found = bytearray()
    while begin < end:
        length = min(RANGE_BYTES, end - begin)
        found += read_memory(
            agent,
            MemoryRequest("read", holder, slot, part, node=node, mark=mark, begin=begin, length=length),
        )
        begin += length
    return found


@dataclass(frozen=True, slots=True)
class StoredTensor:
    """A tensor in memory: its pieces, and of what it is."""

    dtype: torch.dtype
    shape: tuple[int, ...]
    pieces: Sequence[StoredPiece]


@dataclass(frozen=True, slots=True)
class RestoredPieces:
    """What was found in memory, of which each rank reads what it needs, straight into its own tensors.

    All that is read was found whole and undamaged before. Where a node is lost while it is read, `load_into` raises,
    and the parts hold neither state: the worker is to end, and the next one finds the same memory.

    Attributes:
        step: of it.
        parts: of each part, its text.
        file: the newest that a rank found.
        named: tensors have the names of `named_states.py`.
        pieces: of each tensor that is in pieces.
        read: gives bytes of a source.
        finish: is called when every rank has all of its own.
    """

    step: int
    parts: Mapping[str, str]
    file: SavedFile
    named: bool
    pieces: Mapping[str, Sequence[StoredPiece]]
    read: Callable[[int, int, int], memoryview | bytearray]
    finish: Callable[[], None]

    def load_into(self, parts: Mapping[str, Any]) -> None:
        """Gives each part its state. Collective. Raises BadCheckpoint where they are other parts, and OSError."""
        compare_parts(self.step, self.parts, parts)
        kinds = [(name, kind, shape) for name, text in self.parts.items() for _, kind, shape in places(text)]
        begins, _ = place_tensors([_nbytes(kind, shape) for _, kind, shape in kinds])
        whole: dict[str, list[StoredTensor]] = {name: [] for name in self.parts}
        for (name, kind, shape), begin in zip(kinds, begins, strict=True):
            box = Box((0,) * len(shape), shape)
            whole[name].append(StoredTensor(kind, shape, [StoredPiece(box, WHOLE, begin)]))
        order = sorted(self.parts, key=lambda name: not isinstance(parts[name], torch.optim.Optimizer))
        for name in order:  # optimizers first: torch makes their states by a step of zero, which may touch the model
            source: Any = unflatten(self.parts[name], whole[name])  # type: ignore[arg-type]  # stand-ins
            part = parts[name]
            if not has_parameters(part):
                part.load_state_dict(self._fill(None, source, name))
                continue
            target = named_state(part, parts)
            if not self.named:
                source = rename(part, parts, source)
            if isinstance(part, torch.nn.Module) and (other := target.keys() ^ source.keys()):
                raise BadCheckpoint(
                    f"the model in memory of step {self.step} is another one: {sorted(other)[0]} is in one of them only"
                )
            load_named(part, parts, self._fill(target, source, name))
        gather_rows([1])
        self.finish()

    def _fill(self, target: Any, source: Any, where: str) -> Any:  # Any: states of any kind
        if isinstance(source, InPieces):
            source = StoredTensor(source.dtype, source.shape, self.pieces.get(source.where, ()))
            if not isinstance(target, torch.Tensor):
                raise BadCheckpoint(f"{where} is in pieces in memory, and this script has no such tensor")
        if isinstance(source, StoredTensor):
            if not isinstance(target, torch.Tensor):
                target = torch.empty(source.shape, dtype=source.dtype)
            self._read_tensor(target, source, where)
            return target
        if isinstance(source, Mapping):
            known = cast("Mapping[Any, Any]", target if isinstance(target, Mapping) else {})
            held = cast("Mapping[Any, Any]", source)
            filled = {key: self._fill(known.get(key), each, f"{where}[{key!r}]") for key, each in held.items()}
            return Counter(filled) if isinstance(source, Counter) else filled
        if isinstance(source, list | tuple):
            items = cast("Sequence[Any]", source)
            others = cast("Sequence[Any]", target if isinstance(target, list | tuple) else ())
            found = [
                self._fill(others[index] if index < len(others) else None, each, f"{where}[{index}]")
                for index, each in enumerate(items)
            ]
            return tuple(found) if isinstance(source, tuple) else found
        return source

    def _read_tensor(self, target: torch.Tensor, stored: StoredTensor, where: str) -> None:
        if tuple(target.shape) != tuple(stored.shape) or target.dtype != stored.dtype:
            raise BadCheckpoint(
                f"{where} in memory of step {self.step} is {stored.dtype} of the shape {tuple(stored.shape)}, and this "
                f"script's is {target.dtype} of {tuple(target.shape)}: give Checkpoint the same model, or another path"
            )
        local, box = local_box(target)
        try:
            with torch.no_grad():
                for rows in plan_rows(box, stored.pieces, stored.dtype.itemsize, BUCKET_BYTES):
                    data = self.read(rows.source, rows.begin, rows.end)
                    read = torch.frombuffer(data, dtype=stored.dtype).view(rows.shape)
                    placed = local[tuple(slice(*each) for each in rows.placed)]
                    placed.copy_(read[tuple(slice(*each) for each in rows.taken)])
        except PiecesMissing as error:
            raise BadCheckpoint(f"{where} in memory of step {self.step} is not whole: {error}") from error


def read_chosen(
    inventory: HeldInventory, chosen: Mapping[int, tuple[HeldShards, ...]], whole: Callable[[int, int], memoryview]
) -> Callable[[int, int, int], memoryview | bytearray]:
    """Gives bytes of a rank's shards, or of what is in no pieces."""
    reader, _ = rank_and_size()

    def read(source: int, begin: int, end: int) -> memoryview | bytearray:
        if source == WHOLE:
            return whole(begin, end)
        return inventory.read(choose_reader(chosen[source], inventory.node, reader), begin, end)

    return read


def _nbytes(dtype: torch.dtype, shape: Sequence[int]) -> int:
    return prod(shape) * dtype.itemsize


def _bytes_of(kind: str, shape: Sequence[int]) -> int:
    return _nbytes(getattr(torch, kind.removeprefix("torch.")), shape)
