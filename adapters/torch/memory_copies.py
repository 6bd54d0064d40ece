"""The state of a checkpoint's parts in memory that outlives the worker, as torch's tensors see it.

On each node the worker of the lowest rank writes it, and the agent holds it. The format is
`adapters/client/memory_state.py`'s; what is tried first, where all workers were lost, `memory_choice.py` decides.
"""

import contextlib
import os
import sys
from collections.abc import Generator, Mapping
from math import prod
from mmap import mmap
from typing import Any

import torch
from torch import distributed

from ...rendezvous.base.frozen import dataclass
from ...rendezvous.host.control_groups import free_memory
from ..client.checkpoints import BadCheckpoint
from ..client.context import Context, context
from ..client.current_round import current_run
from ..client.memory_channel import GENERATIONS, create_memory, give_memory, take_memory
from ..client.memory_choice import (
    HeldGeneration,
    RankRow,
    SavedFile,
    mark_run,
    newest_file,
    order_candidates,
    row_of,
)
from ..client.memory_state import (
    HEADER_BYTES,
    Generation,
    clear_generation,
    complete_generation,
    is_undamaged,
    place_tensors,
    read_generation,
    write_text,
)
from .ranks import gathered, initialised, rank_and_size
from .tree import UnsupportedState, flatten, places, unflatten

dist: Any = distributed  # half of it has no types in torch

BUCKET_BYTES = 16 << 20
"""Sent at a time."""

BLOCK_WORDS = 8192

TEXT_ROOM = 1 << 16
"""Bytes that a text may grow by, and a quarter of it, before another memory is made."""

_ODD = -7046029254386353131  # 2**64 / the golden ratio: any odd number will do


def sum_blocks(data: memoryview) -> int:
    """A checksum at the pace of memory: four times that of zlib.crc32.

    The words of each 64 KiB are added up, and the sums weighted by where they stand; so nearly any single block
    that is another one is found, and any that stands elsewhere: changes that add up to nothing are not.

    Args:
        data: a multiple of 8 bytes.
    """
    if not len(data):
        return 0
    words = torch.frombuffer(data, dtype=torch.int64)
    whole = len(words) // BLOCK_WORDS * BLOCK_WORDS
    sums = torch.cat([words[:whole].view(-1, BLOCK_WORDS).sum(1), words[whole:].sum().view(1)])
    return int((sums * (torch.arange(1, 2 * len(sums), 2) * _ODD)).sum())


def gather_rows(values: list[int]) -> list[list[int]]:
    """These whole numbers of each rank. Collective. Raises BadCheckpoint."""
    _, size = rank_and_size()
    if size == 1:
        return [values]
    if not initialised():
        raise BadCheckpoint(
            f"a Checkpoint with memory=... of {size} ranks compares them, and this process has no process group: call "
            "torch.distributed.init_process_group() before restore() and commit()"
        )
    return gathered(values, size)


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
        if self.parts.keys() != parts.keys():
            raise BadCheckpoint(
                f"the memory of step {self.step} has the parts {', '.join(self.parts)}, and not {', '.join(parts)}: "
                "give Checkpoint the same parts, or another path"
            )
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
    """

    def __init__(self, holder: str, agent: str) -> None:
        self._holder = holder
        self._agent = agent
        self._round = 0  # for which the writer was found, and the buffers were taken
        self._writes = False
        self._run: str | None = None
        self._buffers: dict[int, mmap] = {}
        self._steps: dict[int, tuple[int, int]] = {}  # of whole generations, by slot: round and step
        self._newest: int | None = None  # the slot

    def is_writer(self) -> bool:
        """Whether this rank writes for its node: the lowest does. Collective, first in each round. Raises OSError."""
        here = context()
        if self._round != here.round:
            self._begin_round(here)
            if self._writes:
                self._map_held()
        return self._writes

    def write(self, step: int, states: Mapping[str, object]) -> None:
        """The state of `step` into the older generation. On the writer of this node.

        Raises BadCheckpoint, OSError.
        """
        here = context()
        if self._run is None:
            self._run = current_run()
        texts: dict[str, str] = {}
        tensors: list[torch.Tensor] = []
        for name, state in states.items():
            try:
                texts[name], more = flatten(state, name)
            except UnsupportedState as error:
                raise BadCheckpoint(f"memory=... cannot keep a part: {error}") from error
            tensors += more
        offsets, end = place_tensors([each.nbytes for each in tensors])
        text = write_text(self._run, texts)
        slot = self._choose_slot()
        with self._filled(slot, end + len(text), len(text)) as buffer:
            with torch.no_grad():
                for offset, each in zip(offsets, tensors, strict=True):
                    if each.nbytes:
                        _tensor_in(buffer, each.dtype, tuple(each.shape), offset).copy_(each)
            complete_generation(buffer, here.round, step, text, end, sum_blocks)
        self._steps[slot], self._newest = (here.round, step), slot

    def settle(self) -> None:
        """Every rank has what was last written: what is left of a course that was given up counts no more."""
        if self._newest is None:
            return
        for slot, steps in tuple(self._steps.items()):
            if slot != self._newest and steps >= self._steps[self._newest]:
                clear_generation(self._buffers[slot])
                del self._steps[slot]

    def restore(self, file: SavedFile) -> Restored | None:
        """The newest whole state that any node holds, the same on every rank; None where the file is as new.

        Collective. Says what it finds damaged.

        Args:
            file: what this rank finds on disk.

        Raises BadCheckpoint, OSError.
        """
        here = context()
        self._begin_round(here)
        self._run = current_run() or None
        self._map_held()
        rank, _ = rank_and_size()
        own = {slot: each for slot, buffer in self._buffers.items() if (each := read_generation(buffer))}
        told = {slot: _held(each) for slot, each in own.items()}
        first, second = (told.get(slot, HeldGeneration()) for slot in range(GENERATIONS))
        row = RankRow(file, first, second, mark_run(self._run or ""))
        rows = [row_of(each) for each in gather_rows(row.numbers)]
        found: Restored | None = None
        for wanted in order_candidates(rows):
            slot = next((slot for slot, each in told.items() if each == wanted), None)
            whole = slot is not None and is_undamaged(self._buffers[slot], own[slot], sum_blocks)
            if slot is not None and not whole and self._writes:
                say_in_job(f"memory of step {wanted.step} on node {here.node} is damaged: it is not used")
                clear_generation(self._buffers[slot])
                self._forget(slot)
            owners = [index for index, (each,) in enumerate(gather_rows([int(whole)])) if each]
            if not owners:
                continue
            buffer: Any = self._buffers[slot] if slot is not None and whole else bytearray(wanted.size)
            if len(owners) < len(rows):
                broadcast_bytes(buffer, wanted.size, owners[0], takes=not whole)
            generation = read_generation(buffer)
            if generation is None or not (whole or is_undamaged(buffer, generation, sum_blocks)):
                raise BadCheckpoint(f"memory of step {wanted.step} was damaged on its way from rank {owners[0]}")
            if whole:
                self._newest = slot  # what is taken is not what is written next, though another is of a later round
            elif self._writes:
                self._keep_sent(buffer, generation)
            newest = newest_file(rows)
            if rank == 0:
                older = f"the file has step {newest.step}" if newest.step >= 0 else "there is no file"
                say_in_job(f"going on after step {wanted.step}, from memory ({older})")
            found = Restored(wanted.step, generation.parts, _tensors_of(buffer, generation), newest)
            break
        if not self._writes:
            self._buffers, self._steps, self._newest = {}, {}, None
        return found

    def _keep_sent(self, sent: bytearray, generation: Generation) -> None:
        """What this node was sent is held here, too, at once. Raises BadCheckpoint, OSError."""
        slot = self._choose_slot()
        with self._filled(slot, generation.size, generation.size - generation.end) as buffer:
            buffer[HEADER_BYTES : generation.size] = sent[HEADER_BYTES : generation.size]
            buffer[:HEADER_BYTES] = sent[:HEADER_BYTES]
        self._steps[slot], self._newest = (generation.round, generation.step), slot

    @contextlib.contextmanager
    def _filled(self, slot: int, size: int, text: int) -> Generator[mmap]:
        """The slot's memory, of at least that size, without a generation; the agent holds it when it has one."""
        made = self._make(slot, size, text)
        try:
            clear_generation(self._buffers[slot])
            self._steps.pop(slot, None)
            yield self._buffers[slot]
            if made is not None:
                give_memory(self._agent, self._holder, slot, made)
        except BaseException:
            if made is not None:
                del self._buffers[slot]  # the agent may not hold it: the next write makes another one
            raise
        finally:
            if made is not None:
                os.close(made)

    def _forget(self, slot: int) -> None:
        """It holds no generation any more."""
        self._steps.pop(slot, None)
        if self._newest == slot:
            self._newest = max(self._steps, key=lambda each: self._steps[each], default=None)

    def _begin_round(self, here: Context) -> None:
        """Finds out who writes. Local ranks do not tell: with --virtual-local-rank, all of them are 0. Collective."""
        rank, _ = rank_and_size()
        self._writes = [node for (node,) in gather_rows([here.node])].index(here.node) == rank
        self._round, self._run = here.round, None

    def _map_held(self) -> None:
        """What the agent holds."""
        self._buffers, self._steps = {}, {}
        taken = take_memory(self._agent, self._holder)
        try:
            for slot, descriptor in taken.items():
                self._buffers[slot] = mmap(descriptor, os.fstat(descriptor).st_size)
        finally:
            for descriptor in taken.values():
                os.close(descriptor)
        for slot, buffer in self._buffers.items():
            if found := read_generation(buffer):
                self._steps[slot] = found.round, found.step
        self._newest = max(self._steps, key=lambda slot: self._steps[slot], default=None)

    def _choose_slot(self) -> int:
        """The one to be written: never the newest that is whole."""
        return next(slot for slot in range(GENERATIONS) if slot != self._newest)

    def _make(self, slot: int, size: int, text: int) -> int | None:
        """A new memory for this slot, where what is there does not do; the caller gives its descriptor away."""
        if slot in self._buffers and len(self._buffers[slot]) >= size:
            return None
        size += text // 4 + TEXT_ROOM
        missing = GENERATIONS - len(self._buffers) if slot not in self._buffers else 1
        free = free_memory()
        if missing * size > free:
            raise BadCheckpoint(
                f"memory=... holds {GENERATIONS} generations of {size / 1e6:,.1f} MB on each node, and this node, with "
                f"the control groups of this process, has {free / 1e6:,.1f} MB left: give it more memory, or leave "
                "memory=... out and save the file each few steps (every=...)"
            )
        descriptor = create_memory(size)
        try:
            self._buffers[slot] = mmap(descriptor, os.fstat(descriptor).st_size)
        except BaseException:
            os.close(descriptor)
            raise
        return descriptor


def _held(generation: Generation) -> HeldGeneration:
    return HeldGeneration(generation.step, generation.round, mark_run(generation.run), generation.mark, generation.size)


def _tensor_in(buffer: Any, dtype: torch.dtype, shape: tuple[int, ...], offset: int) -> torch.Tensor:
    count = prod(shape)
    if not count:
        return torch.empty(shape, dtype=dtype)
    return torch.frombuffer(buffer, dtype=dtype, count=count, offset=offset).view(shape)


def _tensors_of(buffer: Any, generation: Generation) -> list[torch.Tensor]:
    kinds = [(dtype, shape) for text in generation.parts.values() for _, dtype, shape in places(text)]
    offsets, _ = place_tensors([prod(shape) * dtype.itemsize for dtype, shape in kinds])
    return [_tensor_in(buffer, dtype, shape, offset) for (dtype, shape), offset in zip(kinds, offsets, strict=True)]


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
        print(f"[elastic-run] {words}", file=sys.stderr, flush=True)
