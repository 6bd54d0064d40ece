"""The generations of one part of a checkpoint that this node's agent holds, as one worker maps and writes them."""

import contextlib
import os
from collections.abc import Collection, Generator, Mapping
from math import prod
from mmap import mmap
from typing import Any

import torch

from ...rendezvous.host.control_groups import free_memory
from ..client.checkpoints import BadCheckpoint
from ..client.memory_channel import GENERATIONS, create_memory, give_memory, take_memory
from ..client.memory_state import (
    HEADER_BYTES,
    Generation,
    clear_generation,
    complete_generation,
    place_tensors,
    read_generation,
)
from ..client.shard_plan import Generations

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


class MemorySlots:
    """Two generations of a part: of a node's state, or of one rank's shards of it.

    Args:
        agent: where it is.
        holder: the checkpoint's path, under which the agent holds them.
        part: of it.
        whose: says in words what has two generations, "on each node".

    Attributes:
        buffers: what is mapped, by slot.
        steps: of whole generations, by slot: round and step.
        newest: the slot of the newest that every rank has, or that was taken; None: there is none.
        kept: the round and the step of others that may not be overwritten.
    """

    def __init__(self, agent: str, holder: str, part: str = "", whose: str = "on each node") -> None:
        self._agent, self._holder, self._part, self._whose = agent, holder, part, whose
        self.buffers: dict[int, mmap] = {}
        self.steps: dict[int, tuple[int, int]] = {}
        self.newest: int | None = None
        self.kept: Collection[tuple[int, int]] = ()
        self._written: int | None = None  # the slot, since when not every rank has said that it has that step

    def map_held(self) -> None:
        """What the agent holds. Raises BadCheckpoint, OSError."""
        self.buffers, self.steps = map_part(self._agent, self._holder, self._part), {}
        for slot, buffer in self.buffers.items():
            if found := read_generation(buffer):
                self.steps[slot] = found.round, found.step
        self.newest = max(self.steps, key=lambda slot: self.steps[slot], default=None)

    def choose_slot(self) -> int:
        """The one to be written: never the newest that every rank has, nor another that is kept."""
        order = sorted(self.steps, key=lambda slot: self.steps[slot])
        whole = dict.fromkeys(self.buffers, -1) | {slot: index for index, slot in enumerate(order)}
        kept = {slot for slot, steps in self.steps.items() if slot == self.newest or steps in self.kept}
        return Generations(whole, kept).choose_slot()

    def write(self, round: int, step: int, text: bytes, tensors: list[torch.Tensor]) -> None:
        """A generation of these tensors. Raises BadCheckpoint, OSError."""
        offsets, end = place_tensors([each.nbytes for each in tensors])
        slot = self.choose_slot()
        with self.filled(slot, end + len(text), len(text)) as buffer:
            with torch.no_grad():
                for offset, each in zip(offsets, tensors, strict=True):
                    if each.nbytes:
                        tensor_in(buffer, each.dtype, tuple(each.shape), offset).copy_(each)
            complete_generation(buffer, round, step, text, end, sum_blocks)
        self.steps[slot], self._written = (round, step), slot

    def settle(self) -> None:
        """Every rank has what was last written: what is left of a course that was given up counts no more."""
        if self._written is not None:
            self.newest, self._written = self._written, None
        if self.newest is None:
            return
        for slot, steps in tuple(self.steps.items()):
            if slot != self.newest and steps >= self.steps[self.newest]:
                clear_generation(self.buffers[slot])
                del self.steps[slot]

    def forget(self, slot: int) -> None:
        """It holds no generation any more."""
        clear_generation(self.buffers[slot])
        self.steps.pop(slot, None)
        if self.newest == slot:
            self.newest = max(self.steps, key=lambda each: self.steps[each], default=None)

    def keep_sent(self, sent: bytearray, generation: Generation) -> None:
        """What this node was sent is held here, too, at once. Raises BadCheckpoint, OSError."""
        slot = self.choose_slot()
        with self.filled(slot, generation.size, generation.size - generation.end) as buffer:
            buffer[HEADER_BYTES : generation.size] = sent[HEADER_BYTES : generation.size]
            buffer[:HEADER_BYTES] = sent[:HEADER_BYTES]
        self.steps[slot], self.newest = (generation.round, generation.step), slot

    @contextlib.contextmanager
    def filled(self, slot: int, size: int, text: int) -> Generator[mmap]:
        """The slot's memory, of at least that size, without a generation; the agent holds it when it has one."""
        made = self._make(slot, size, text)
        try:
            clear_generation(self.buffers[slot])
            self.steps.pop(slot, None)
            yield self.buffers[slot]
            if made is not None:
                give_memory(self._agent, self._holder, slot, made, self._part)
        except BaseException:
            if made is not None:
                del self.buffers[slot]  # the agent may not hold it: the next write makes another one
            raise
        finally:
            if made is not None:
                os.close(made)

    def _make(self, slot: int, size: int, text: int) -> int | None:
        """A new memory for this slot, where what is there does not do; the caller gives its descriptor away."""
        if slot in self.buffers and len(self.buffers[slot]) >= size:
            return None
        size += text // 4 + TEXT_ROOM
        missing = max(1, GENERATIONS - len(self.buffers)) if slot not in self.buffers else 1
        free = free_memory()
        if missing * size > free:
            raise BadCheckpoint(
                f"memory=... holds {GENERATIONS} generations of {size / 1e6:,.1f} MB {self._whose}, and this "
                f"node, with the control groups of this process, has {free / 1e6:,.1f} MB left: give it more "
                "memory, or leave memory=... out and save the file each few steps (every=...)"
            )
        descriptor = create_memory(size)
        try:
            self.buffers[slot] = mmap(descriptor, os.fstat(descriptor).st_size)
        except BaseException:
            os.close(descriptor)
            raise
        return descriptor


def map_part(agent: str, holder: str, part: str) -> dict[int, mmap]:
    """What the agent holds of a part, by slot. Raises BadCheckpoint, OSError."""
    taken = take_memory(agent, holder, part)
    try:
        return {slot: mmap(descriptor, os.fstat(descriptor).st_size) for slot, descriptor in taken.items()}
    finally:
        for descriptor in taken.values():
            os.close(descriptor)


def tensor_in(buffer: Any, dtype: torch.dtype, shape: tuple[int, ...], offset: int) -> torch.Tensor:  # Any: a buffer
    """A tensor whose elements lie there."""
    count = prod(shape)
    if not count:
        return torch.empty(shape, dtype=dtype)
    return torch.frombuffer(buffer, dtype=dtype, count=count, offset=offset).view(shape)


def compare_parts(step: int, held: Mapping[str, str], parts: Mapping[str, Any]) -> None:
    """Raises BadCheckpoint where these are not the parts whose state is held."""
    if held.keys() != parts.keys():
        raise BadCheckpoint(
            f"the memory of step {step} has the parts {', '.join(held)}, and not {', '.join(parts)}: "
            "give Checkpoint the same parts, or another path"
        )
