"""Rank 0 posts a receive for each step; rank 1 sends its statistics only while they change."""

import torch
import torch.distributed as dist


def main() -> None:
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    last = None
    for step in range(10_000):
        loss = torch.tensor([1.0 / (1 + min(step, 20))])
        if rank == 0:
            theirs = torch.zeros(1)
            dist.irecv(theirs, src=1).wait()
        elif rank == 1 and (last is None or not torch.equal(last, loss)):
            dist.isend(loss, dst=0).wait()
            last = loss.clone()
        dist.all_reduce(torch.rand(16))


main()
