"""The state of a checkpoint's parts in memory that outlives the worker, as torch's tensors see it.

On each node the worker of the lowest rank writes it, and the agent holds it. The format is
`adapters/client/memory_state.py`'s; what is tried first, where all workers were lost, `memory_choice.py` decides.
"""

import contextlib
import json
from collections.abc import Mapping
from math import prod
from typing import TYPE_CHECKING, Any

import torch
from torch import distributed

from ...master.machine.memory_report import MemoryReport
from ...rendezvous.base.frozen import dataclass
from ...rendezvous.wire.values import encode
from ..client.channel import say_line
from ..client.checkpoints import BadCheckpoint
from ..client.context import Context, context
from ..client.current_round import current_run
from ..client.memory_channel import MOST_GENERATIONS
from ..client.memory_choice import HeldGeneration, RankRow, SavedFile, mark_run, newest_file, order_candidates, row_of
from ..client.memory_state import (
    Generation,
    is_undamaged,
    place_tensors,
    read_generation,
    write_text,
)
from ..client.shard_plan import HeldShards, Replication
from .memory_slots import MemorySlots, compare_parts, sum_blocks, tensor_in
from .ranks import gather_rows, gather_texts, rank_and_size
from .tree import UnsupportedState, flatten, places, unflatten

if TYPE_CHECKING:
    from .sharded_copies import HeldInventory, RestoredPieces, ShardedCopies

dist: Any = distributed  # half of it has no types in torch

BUCKET_BYTES = 16 << 20
"""Sent at a time."""


@dataclass(frozen=True, slots=True)
class Restored:
    """What was taken from memory.

    Attributes:
        parts: of each part, its text.
        tensors: of all parts, in their order; they lie in memory that is written again.
        file: the newest that a rank found.
    """

    step: int
    parts: Mapping[str, str]
    tensors: list[torch.Tensor]
    file: SavedFile

    def load_into(self, parts: Mapping[str, Any]) -> None:
        """Gives each part its state. Raises BadCheckpoint where they are other parts."""
        compare_parts(self.step, self.parts, parts)
        begin = 0
        for name, text in self.parts.items():
            end = begin + len(places(text))
            # Copies, since optimizers keep what they are given.
            parts[name].load_state_dict(unflatten(text, [each.clone() for each in self.tensors[begin:end]]))
            begin = end


class MemoryCopies:
    """Two generations on this node, as one worker of it sees them.

    Args:
        holder: the checkpoint's path, under which the agent holds them.
        agent: where it is.

    Attributes:
        slots: of what is in no pieces.
    """

    def __init__(self, holder: str, agent: str) -> None:
        self._holder = holder
        self._agent = agent
        self._round = 0  # for which the writer was found, and the buffers were taken
        self._writes = False
        self._nodes = 1
        self._run: str | None = None
        self.slots = MemorySlots(agent, holder)
        self._shards: ShardedCopies | None = None
        self._left = False  # shards of a round before this one, in which ranks have none

    def is_writer(self) -> bool:
        """Whether this rank writes for its node: the lowest does. Collective, first in each round. Raises OSError."""
        here = context()
        if self._round != here.round:
            self._begin_round(here)
            if self._writes:
                self.slots.map_held()
        return self._writes

    def write(self, step: int, states: Mapping[str, object], *, in_pieces: bool = False) -> None:
        """The state of `step` into the older generation. On the writer of this node, of pieces on every rank.

        Raises BadCheckpoint, OSError.
        """
        here = context()
        if self._run is None:
            self._run = current_run()
        texts: dict[str, str] = {}
        tensors: list[torch.Tensor] = []
        pieces: list[tuple[str, torch.Tensor]] | None = [] if in_pieces else None
        for name, state in states.items():
            try:
                texts[name], more = flatten(state, name, pieces)
            except UnsupportedState as error:
                raise BadCheckpoint(f"memory=... cannot keep a part: {error}") from error
            tensors += more
        world = 0
        if pieces is not None:
            if self._shards is None:
                from .sharded_copies import ShardedCopies  # here, because it loads all of torch.distributed.checkpoint

                self._shards = ShardedCopies(self._holder, self._agent)
            self._run = self._shards.write(step, self._run, pieces, here)
            world = rank_and_size()[1]
        if self._writes:
            self.slots.write(here.round, step, write_text(self._run, texts, world), tensors)

    @property
    def replication(self) -> Replication | None:
        """How far copies of shards on other nodes are; None where ranks have no shards."""
        return self._shards.replication if self._shards is not None else None

    def describe(self, step: int, every: int) -> str:
        """What nodes hold after the commit of `step`, as JSON, for who asks how the job is."""
        found = self.replication
        report = MemoryReport(step, every, self._nodes, found is not None, found.safe if found is not None else None)
        return encode(report).decode()

    def is_copied(self) -> bool:
        """Whether another node holds what of this rank was being copied there. Raises BadCheckpoint, OSError."""
        return self._shards is None or self._shards.is_copied()

    def settle(self, step: int, *, copied: bool) -> None:
        """Every rank has `step`: what is left of a course that was given up counts no more.

        Args:
            copied: `is_copied` on every rank.
        """
        self.slots.settle()
        kept: set[tuple[int, int]] | None = set()
        if self._shards is not None:
            kept = self._shards.settle(step, copied=copied, writes=self._writes)
        elif self._left:
            self._left = False
            if self._writes:
                from .sharded_copies import drop_shards  # here, as above

                drop_shards(self._agent, self._holder)
        if kept is not None:
            self.slots.kept = kept

    def restore(self, file: SavedFile, *, in_pieces: bool = False) -> "Restored | RestoredPieces | None":
        """The newest whole state that any node holds, the same on every rank; None where the file is as new.

        Collective. Says what it finds damaged, and which step is not whole.

        Args:
            file: what this rank finds on disk.
            in_pieces: this rank has pieces of the model's parameters.

        Raises BadCheckpoint, OSError.
        """
        here = context()
        self._begin_round(here)
        self._run = current_run() or None
        self.slots.map_held()
        rank, _ = rank_and_size()
        own = {slot: each for slot, buffer in self.slots.buffers.items() if (each := read_generation(buffer))}
        told = {slot: _held(each) for slot, each in own.items()}
        first, second, *others = (told.get(slot, HeldGeneration()) for slot in range(MOST_GENERATIONS))
        row = RankRow(file, first, second, mark_run(self._run or ""), *others)
        gathered = gather_rows([*row.numbers, int(in_pieces)])
        rows = [row_of(each[:-1]) for each in gathered]
        in_pieces = any(each[-1] for each in gathered)
        candidates, newest = order_candidates(rows), newest_file(rows)
        inventory: HeldInventory | None = None
        if in_pieces or any(each.world for each in candidates):
            from . import sharded_copies  # here, as above

            inventory = sharded_copies.HeldInventory(self._holder, self._agent, writes=self._writes)
            self._left = True
        found: Restored | RestoredPieces | None = None
        for wanted in candidates:
            chosen: Mapping[int, tuple[HeldShards, ...]] = {}
            if inventory is not None and wanted.world:
                chosen = inventory.choose(wanted)
                if not chosen:
                    if rank == 0:
                        say_in_job(f"memory of step {wanted.step} lacks shards of some ranks: it is not used")
                    continue
            slot = next((slot for slot, each in told.items() if each == wanted), None)
            whole = slot is not None and is_undamaged(self.slots.buffers[slot], own[slot], sum_blocks)
            if slot is not None and not whole and self._writes:
                say_in_job(f"memory of step {wanted.step} on node {here.node} is damaged: it is not used")
                self.slots.forget(slot)
            owners = [index for index, (each,) in enumerate(gather_rows([int(whole)])) if each]
            if not owners:
                continue
            if inventory is not None and not wanted.world:  # which is now to be in pieces: no rank takes all of it
                found = self._find_whole(wanted, slot if whole else None, owners[0], inventory, newest)
            else:
                some_lack = len(owners) < len(rows)
                found = self._take_whole(
                    wanted, slot if whole else None, owners[0], some_lack, inventory, chosen, newest
                )
            if rank == 0:
                older = f"the file has step {newest.step}" if newest.step >= 0 else "there is no file"
                say_in_job(f"going on after step {wanted.step}, from memory ({older})")
            if whole:  # what is taken is not what is written next, though another is of a later round
                self.slots.newest = slot
            self.slots.kept = {(wanted.round, wanted.step)}
            break
        if not self._writes:
            self.slots = MemorySlots(self._agent, self._holder)
        return found

    def _take_whole(
        self,
        wanted: HeldGeneration,
        slot: int | None,
        owner: int,
        some_lack: bool,
        inventory: "HeldInventory | None",
        chosen: Mapping[int, tuple[HeldShards, ...]],
        file: SavedFile,
    ) -> "Restored | RestoredPieces":
        """What nodes hold that is in no pieces; who lacks it is sent it. Collective. Raises BadCheckpoint, OSError."""
        buffer: Any = self.slots.buffers[slot] if slot is not None else bytearray(wanted.size)
        if some_lack:
            broadcast_bytes(buffer, wanted.size, owner, takes=slot is None)
        generation = read_generation(buffer)
        if generation is None or not (slot is not None or is_undamaged(buffer, generation, sum_blocks)):
            raise BadCheckpoint(f"memory of step {wanted.step} was damaged on its way from rank {owner}")
        if slot is None and self._writes:
            self.slots.keep_sent(buffer, generation)
        if inventory is None:
            return Restored(wanted.step, generation.parts, _tensors_of(buffer, generation), file)
        from .sharded_copies import RestoredPieces, read_chosen  # here, as above

        read = read_chosen(inventory, chosen, lambda begin, end: memoryview(buffer)[begin:end])
        pieces = inventory.read_pieces(chosen)

        def finish() -> None:
            inventory.drop_others(chosen)

        return RestoredPieces(wanted.step, generation.parts, file, True, pieces, read, finish)

    def _find_whole(
        self, wanted: HeldGeneration, slot: int | None, owner: int, inventory: "HeldInventory", file: SavedFile
    ) -> "RestoredPieces":
        """A state that is in no pieces, of which each rank reads its rows. Collective. Raises BadCheckpoint."""
        from .sharded_copies import RestoredPieces, read_remote  # here, as above

        rank, _ = rank_and_size()
        own = None if slot is None else self.slots.buffers[slot]
        generation = None if own is None else read_generation(own)
        told = ""
        if rank == owner and generation is not None:
            told = json.dumps([inventory.node, slot, dict(generation.parts)])
        node, at, parts = json.loads(gather_texts(told)[owner])

        def read(_: int, begin: int, end: int) -> memoryview | bytearray:
            if own is not None:
                return memoryview(own)[begin:end]
            return read_remote(self._agent, self._holder, node, "", at, wanted.mark, begin, end)

        return RestoredPieces(wanted.step, parts, file, False, {}, read, lambda: None)

    def _begin_round(self, here: Context) -> None:
        """Finds out who writes. Local ranks do not tell: with --virtual-local-rank, all of them are 0. Collective."""
        rank, _ = rank_and_size()
        nodes = [node for (node,) in gather_rows([here.node])]
        self._writes, self._nodes = nodes.index(here.node) == rank, len(set(nodes))
        self._round, self._run = here.round, None


def _held(generation: Generation) -> HeldGeneration:
    return HeldGeneration(
        generation.step, generation.round, mark_run(generation.run), generation.mark, generation.size, generation.world
    )


def _tensors_of(buffer: Any, generation: Generation) -> list[torch.Tensor]:
    kinds = [(dtype, shape) for text in generation.parts.values() for _, dtype, shape in places(text)]
    offsets, _ = place_tensors([prod(shape) * dtype.itemsize for dtype, shape in kinds])
    return [tensor_in(buffer, dtype, shape, offset) for (dtype, shape), offset in zip(kinds, offsets, strict=True)]


def broadcast_bytes(buffer: Any, size: int, source: int, *, takes: bool) -> None:
    """The bytes of a generation from that rank to those that take it. Collective."""
    kinds = [part.partition(":")[0] for part in dist.get_backend_config().split(",")]
    device = "cpu" if "cpu" in kinds else kinds[0]
    flat = torch.frombuffer(buffer, dtype=torch.uint8, count=size)
    for begin in range(0, size, BUCKET_BYTES):
        here = flat[begin : begin + BUCKET_BYTES]
        piece = here.to(device, copy=True)  # who has it already does not have it written again
        dist.broadcast(piece, source)
        if takes:
            here.copy_(piece)


def say_in_job(words: str) -> None:
    """One line for a person."""
    with contextlib.suppress(OSError):
        say_line(words)
