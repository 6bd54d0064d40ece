"""DDP's Join: two ranks have run out of inputs and shadow the third, whose last batches are slow."""

import time

import torch
import torch.distributed as dist
from torch.distributed.algorithms.join import Join
from torch.nn.parallel import DistributedDataParallel


def batches(rank: int):
    for number in range(30 + 6 * (rank == 0)):
        if number >= 31:
            time.sleep(3.0)  # long documents come last
        yield torch.full((2, 4), float(number))


def main() -> None:
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    model = DistributedDataParallel(torch.nn.Linear(4, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-6)
    with Join([model]):
        for number, batch in enumerate(batches(rank)):
            optimizer.zero_grad()
            model(batch).mean().backward()
            optimizer.step()
            time.sleep(0.12)
            if number % 6 == 0:
                print(f"rank {rank} batch {number}", flush=True)
    dist.barrier()
    dist.destroy_process_group()


main()
