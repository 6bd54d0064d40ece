"""What is wrong with a request to a ledger that comes from a wire (pure)."""

from .ledger import DONE, OffsetRange, Position, Request

MAX_PARTITION_NAME = 300
"""Characters of what a partition of a stream is called: the ledger has it for each."""


def check_request(request: Request) -> str:
    """What is wrong with a request's shape, in words; empty where nothing is. Whoever takes it from a wire asks."""
    if request.kind == "open":
        dataset = request.dataset
        if dataset is None or dataset.name != request.name:
            return "an open without its dataset"
        if min(dataset.size, dataset.shard_size, dataset.shards, dataset.epochs) < 1:
            return f"dataset {dataset.name!r} is empty"
        if request.restored and not _sound(request.restored):
            return "the position that was restored is damaged"
    elif request.sequence < 1:
        return "a request without a number"
    if not 0 <= request.rank < request.world:
        return f"rank {request.rank} of {request.world}"
    if any(mark.shard_index < 0 or mark.offset < DONE for mark in request.marks):
        return "a mark of no shard"
    if any(mark.lost < 0 for mark in request.marks) or not all(map(_is_range, request.known)):
        return "offsets that cannot be"
    return ""


def _is_range(offsets: OffsetRange) -> bool:
    return 0 < len(offsets.partition) <= MAX_PARTITION_NAME and 0 <= offsets.first <= offsets.stop


def _sound(position: Position) -> bool:
    shard_indices = [piece.shard_index for piece in position.todo]
    return (
        position.frontier >= 0
        and shard_indices == sorted(set(shard_indices))
        and all(0 <= piece.shard_index < position.frontier and piece.offset >= 0 for piece in position.todo)
        and all(map(_is_range, (*position.partitions, *(piece.offsets for piece in position.todo if piece.offsets))))
        and min(position.leased, position.lost) >= 0
    )
