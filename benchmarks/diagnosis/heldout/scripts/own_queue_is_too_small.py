"""A rank puts the pieces of a document into a bounded queue before it takes them out again."""

import queue

import torch
import torch.distributed as dist


def split(length: int) -> "list[torch.Tensor]":
    pieces: queue.Queue[torch.Tensor] = queue.Queue(maxsize=64)
    for begin in range(0, length, 512):
        pieces.put(torch.rand(8))
    return [pieces.get() for _ in range(pieces.qsize())]


def main() -> None:
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    for step in range(10_000):
        length = 40_000 if rank == 1 and step == 21 else 1000 + 37 * (step % 90)
        dist.all_reduce(sum(split(length)))


main()
