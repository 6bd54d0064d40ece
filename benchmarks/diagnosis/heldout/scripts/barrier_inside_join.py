"""Uneven inputs are joined, but not the barrier before each checkpoint: the rank that is done takes no part in it."""

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.algorithms.join import Join
from torch.nn.parallel import DistributedDataParallel


def main() -> None:
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    model = DistributedDataParallel(nn.Linear(8, 1))
    optimizer = torch.optim.SGD(model.parameters(), 0.01)
    for epoch in range(100):
        with Join([model]):
            for step in range(40 if rank == 1 and epoch else 50):
                model(torch.rand(4, 8)).sum().backward()
                optimizer.step()
                if step % 15 == 14:
                    dist.barrier()


main()
