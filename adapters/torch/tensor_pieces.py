"""How tensors travel: small ones together, large ones alone, as pieces of bytes that are sent one after another."""

from collections.abc import Iterator, Sequence

import torch

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
