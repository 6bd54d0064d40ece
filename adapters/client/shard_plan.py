"""Which ranks' shards make a state whole, and which of their bytes a rank of another world size reads (pure).

A state of several pieces is there when, of one run, round and step, the shards of every rank are held by some node. A
rank overwrites the older of its two generations only once every rank has the newer one: ranks that are killed a step
apart so have the older one in common (`tests/unit/adapters/client/test_shard_plan.py` shows what is lost otherwise).

A piece is a box of a tensor: where it begins in each dimension, and how long it is. Whoever reads has a box of its own,
and takes from each piece the rows that both have, a bucket at a time.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from math import prod
from typing import NamedTuple

from ...rendezvous.base.frozen import dataclass


class HeldShards(NamedTuple):
    """The shards of one rank and one step, as a node holds them.

    Attributes:
        node: its name in the job.
        part: what they are called there.
        rank: whose; of `world` ranks.
        run: a mark of the job's run, as in `HeldGeneration`; round, step: likewise.
        mark: of their header.
        size: bytes.
    """

    node: str
    part: str
    slot: int
    rank: int
    world: int
    run: int
    round: int
    step: int
    mark: int
    size: int


class Box(NamedTuple):
    """A part of a tensor: where it begins, and how long it is, in each dimension."""

    offsets: tuple[int, ...]
    sizes: tuple[int, ...]

    @property
    def elements(self) -> int:
        """How many."""
        return prod(self.sizes)


class StoredPiece(NamedTuple):
    """A box of a tensor, as it lies in memory.

    Attributes:
        source: which memory: a rank's, or `WHOLE`.
        begin: the byte there.
    """

    box: Box
    source: int
    begin: int


WHOLE = -1
"""The source of what is in no pieces."""


class RowRange(NamedTuple):
    """Some rows of a piece, and what of them goes where.

    Attributes:
        source, begin, end: which bytes of which memory.
        shape: of what these bytes are.
        taken: of these, in each dimension from where until where.
        placed: where that goes in the reader's box, likewise.
    """

    source: int
    begin: int
    end: int
    shape: tuple[int, ...]
    taken: tuple[tuple[int, int], ...]
    placed: tuple[tuple[int, int], ...]


class PiecesMissing(LookupError):
    """Some elements are in no piece."""


def name_part(run: int, round: int, rank: int) -> str:
    """What a rank's shards are called where they are held. Those of another round have other names."""
    return f"{run:08x}.{round}.{rank}"


def rank_of_part(part: str) -> int:
    """Whose shards have that name; -1: it is not one of ours."""
    last = part.rpartition(".")[2]
    return int(last) if last.isdecimal() else -1


def choose_shards(
    held: Iterable[HeldShards], run: int, round: int, step: int, world: int, damaged: Collection[HeldShards] = ()
) -> Mapping[int, tuple[HeldShards, ...]]:
    """Of each rank, those that hold its shards of that step; empty where the shards of a rank are nowhere.

    Every rank of the job decides the same of the same rows. The nodes are in the order of their names.
    """
    found: dict[int, list[HeldShards]] = {rank: [] for rank in range(world)}
    for each in held:
        if (each.run, each.round, each.step, each.world) == (run, round, step, world) and each not in damaged:
            found.setdefault(each.rank, []).append(each)
    if not all(found.values()) or len(found) != world:
        return {}
    return {rank: tuple(sorted(each)) for rank, each in sorted(found.items())}


def choose_reader(holders: Sequence[HeldShards], node: str, reader: int) -> HeldShards:
    """From whom that rank reads: its own node where that holds them, else one of the others, in turn."""
    here = [each for each in holders if each.node == node]
    return here[0] if here else holders[reader % len(holders)]


@dataclass(frozen=True, slots=True)
class Generations:
    """What one rank knows of its generations.

    Attributes:
        whole: the step of each slot that has memory; -1: no whole one.
        kept: the slots that may not be overwritten: of the newest step that every rank has, of the one that is being
            copied to other nodes, and of the last one that was.
    """

    whole: Mapping[int, int]
    kept: Collection[int] = ()

    def choose_slot(self) -> int:
        """The one that is written next: the oldest of those that may be; a new one where there is none."""
        free = [slot for slot in self.whole if slot not in self.kept]
        new = next(slot for slot in range(len(self.whole) + 1) if slot not in self.whole)
        # Two, before the first is used again: what is being written is not whole.
        return new if not free or len(self.whole) < 2 else min(free, key=lambda slot: self.whole[slot])


@dataclass(frozen=True, slots=True)
class Replication:
    """How far copies of a job's shards on other nodes are; every rank has the same value after each commit.

    Attributes:
        safe: the step of which every shard is on two nodes; None: there is none in this round.
        copied: the step that is being copied; None: there is none.
    """

    safe: int | None = None
    copied: int | None = None

    def advance(self, step: int, *, done: bool) -> "Replication":
        """After the commit of `step`; `done`: every rank's shards of the step that was being copied are there."""
        if self.copied is None:
            return Replication(self.safe, step)
        return Replication(self.copied, step) if done else self


def choose_targets(nodes: Sequence[str]) -> Mapping[str, str]:
    """To which node each one's shards are copied: the next one, and the first one's is the last one's.

    Args:
        nodes: of each rank, in their order.
    """
    order = list(dict.fromkeys(nodes))
    return {node: order[(index + 1) % len(order)] for index, node in enumerate(order)} if len(order) > 1 else {}


def find_crowded(told: Sequence[tuple[str, int, int]]) -> tuple[str, int, int] | None:
    """A node whose ranks together want more memory than it has left, as each of them sees that before any takes some.

    Args:
        told: of each rank, its node, the bytes that it wants, and those that it finds left.

    Returns:
        the node, what its ranks want, and what is left; None: all nodes have room.
    """
    for node in dict.fromkeys(node for node, _, _ in told):
        wanted = sum(bytes for name, bytes, _ in told if name == node)
        left = min(free for name, _, free in told if name == node)
        if wanted > left:
            return node, wanted, left
    return None


def plan_rows(wanted: Box, pieces: Sequence[StoredPiece], itemsize: int, bucket: int) -> Iterator[RowRange]:
    """What to read for a box, and where it goes; each element once, though several pieces may have it.

    Args:
        itemsize: bytes of an element.
        bucket: bytes of one read, at most, unless a single row of a piece is longer.

    Raises PiecesMissing.
    """
    left = wanted.elements
    taken: list[Box] = []
    for piece in pieces:
        common = intersect(wanted, piece.box)
        if common is None or common in taken:
            continue
        taken.append(common)
        left -= common.elements
        yield from _split_rows(wanted, piece, common, itemsize, bucket)
    if left:
        raise PiecesMissing(f"{abs(left)} of its {wanted.elements} elements are {'twice' if left < 0 else 'nowhere'}")


def intersect(first: Box, second: Box) -> Box | None:
    """What both have; None where that is nothing. Of numbers (no dimension): themselves."""
    begins = tuple(map(max, first.offsets, second.offsets))
    ends = tuple(
        min(begin + size, other + length)
        for begin, size, other, length in zip(first.offsets, first.sizes, second.offsets, second.sizes, strict=True)
    )
    sizes = tuple(end - begin for begin, end in zip(begins, ends, strict=True))
    return Box(begins, sizes) if all(size > 0 for size in sizes) else None


def _split_rows(wanted: Box, piece: StoredPiece, common: Box, itemsize: int, bucket: int) -> Iterator[RowRange]:
    if not common.sizes:
        yield RowRange(piece.source, piece.begin, piece.begin + itemsize, (), (), ())
        return
    row = prod(piece.box.sizes[1:]) * itemsize
    at_once = max(1, bucket // row)
    first, last = common.offsets[0], common.offsets[0] + common.sizes[0]
    inner = [
        (begin - own, begin - own + size)
        for begin, own, size in zip(common.offsets[1:], piece.box.offsets[1:], common.sizes[1:], strict=True)
    ]
    placed = [
        (begin - own, begin - own + size)
        for begin, own, size in zip(common.offsets[1:], wanted.offsets[1:], common.sizes[1:], strict=True)
    ]
    for begin in range(first, last, at_once):
        rows = min(at_once, last - begin)
        start = piece.begin + (begin - piece.box.offsets[0]) * row
        yield RowRange(
            piece.source,
            start,
            start + rows * row,
            (rows, *piece.box.sizes[1:]),
            ((0, rows), *inner),
            ((begin - wanted.offsets[0], begin - wanted.offsets[0] + rows), *placed),
        )
