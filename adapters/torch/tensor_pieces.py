"""How the state of one rank comes to another: small tensors together, large ones alone, as pieces of bytes in turn."""

from collections import deque
from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch import distributed

from .state_values import StateValues
from .tree import UnsupportedState, places

dist: Any = distributed  # half of it has no types in torch

AHEAD = 4
"""Pieces on their way at a time, so that neither side waits for the other's next call."""

LARGE_BYTES = 1 << 20
"""Smaller tensors travel together, up to BUCKET_BYTES at a time."""

BUCKET_BYTES = 16 << 20

CHUNK_BYTES = 64 << 20
"""Sent at a time."""


def buckets(tensors: Sequence[torch.Tensor]) -> Iterator[list[torch.Tensor]]:
    """What travels together; each large tensor alone. The same on both sides, as the sizes are."""
    bucket: list[torch.Tensor] = []
    held = 0
    for tensor in tensors:
        size = tensor.nbytes
        if size >= LARGE_BYTES:
            yield [tensor]
            continue
        if held + size > BUCKET_BYTES:
            yield bucket
            bucket, held = [], 0
        if size:
            bucket.append(tensor)
            held += size
    if bucket:
        yield bucket


def joined(bucket: Sequence[torch.Tensor]) -> torch.Tensor:
    """The bytes of these, (bytes,) uint8 in memory; of a single one in memory itself, where it is contiguous."""
    flat = [each.detach().contiguous().reshape(-1).view(torch.uint8).cpu() for each in bucket]
    return flat[0] if len(flat) == 1 else torch.cat(flat)


def pieces(flat: torch.Tensor) -> list[torch.Tensor]:
    """What is sent at once, of the bytes of one bucket."""
    return [flat[begin : begin + CHUNK_BYTES] for begin in range(0, len(flat), CHUNK_BYTES)]


def spread(flat: torch.Tensor, bucket: Sequence[torch.Tensor]) -> None:
    """The other way round: the bytes into the tensors of a bucket."""
    begin = 0
    with torch.no_grad():
        for each in bucket:
            end = begin + each.nbytes
            each.copy_(flat[begin:end].clone().view(each.dtype).reshape(each.shape))
            begin = end


def send_state(values: StateValues, target: int, group: Any) -> None:
    """Sends all of it to that rank; `group`: of torch.distributed."""
    text, tensors = values.flattened(large=True)
    words = torch.frombuffer(bytearray(text.encode()), dtype=torch.uint8)
    dist.send(torch.tensor([len(words)]), target, group)
    dist.send(words, target, group)
    ahead: deque[Any] = deque()  # torch's works; each keeps its piece
    for bucket in buckets(tensors):
        for piece in pieces(joined(bucket)):
            if len(ahead) == AHEAD:
                ahead.popleft().wait()
            ahead.append(dist.isend(piece, target, group))
    for work in ahead:
        work.wait()


def receive_state(values: StateValues, source: int, group: Any) -> None:
    """Takes what that rank sends. Raises UnsupportedState where it does not fit."""
    length = torch.empty(1, dtype=torch.int64)
    dist.recv(length, source, group)
    words = torch.empty(int(length), dtype=torch.uint8)
    dist.recv(words, source, group)
    text = bytes(words.numpy()).decode()
    own, mine = values.flattened(large=True)
    here = dict(zip(places(own), mine, strict=True))
    # Straight into what is there already, where it fits; else beside it, to be loaded from there.
    tensors = [here[wanted] if wanted in here else torch.empty(wanted[2], dtype=wanted[1]) for wanted in places(text)]
    ahead: deque[tuple[list[Any], torch.Tensor, list[torch.Tensor]]] = deque()

    def arrive() -> None:
        works, flat, bucket = ahead.popleft()
        for work in works:
            work.wait()
        if bucket:
            spread(flat, bucket)

    for bucket in buckets(tensors):
        if len(ahead) == AHEAD:
            arrive()
        straight = len(bucket) == 1 and bucket[0].is_contiguous() and bucket[0].device.type == "cpu"
        flat = joined(bucket) if straight else torch.empty(sum(each.nbytes for each in bucket), dtype=torch.uint8)
        works = [dist.irecv(piece, source, group) for piece in pieces(flat)]
        ahead.append((works, flat, [] if straight else bucket))
    while ahead:
        arrive()
    try:
        values.load(text, tensors, large=True)
    except (RuntimeError, KeyError, ValueError) as error:
        raise UnsupportedState(
            f"what rank {source} has as its state does not fit this rank's: {error}. Every rank must make its "
            "State of the same parts, of the same shapes"
        ) from error
