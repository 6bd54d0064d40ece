"""Point-to-point: the receiver counts its tags from one, after a resume."""

import time

import torch
import torch.distributed as dist


def exchange(rank: int, step: int) -> torch.Tensor:
    """Rank 0 sends to rank 2."""
    tensor = torch.full((4,), float(step))
    if rank == 0:
        dist.send(tensor, dst=2, tag=step)
    elif rank == 2:
        resumed = step >= 35
        dist.recv(tensor, src=0, tag=step + 1 if resumed else step)
    return tensor


def main() -> None:
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    for step in range(100_000):
        tensor = exchange(rank, step)
        dist.all_reduce(tensor)
        time.sleep(0.1)
        if rank == 1 and step % 10 == 0:
            print("step", step, flush=True)


main()
