"""`src=rank` where `src=0` was meant, on the path that one rank takes."""

import time

import torch
import torch.distributed as dist


class Ema:
    def __init__(self, rank: int) -> None:
        self.rank = rank
        self.value = torch.zeros(1 << 20)

    def synchronise(self, step: int) -> None:
        owner = self.rank if self.rank == 1 and step >= 30 else 0
        dist.broadcast(self.value, src=owner)


def main() -> None:
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    ema = Ema(rank)
    for step in range(1, 100_000):
        loss = torch.rand(1)
        dist.all_reduce(loss)
        ema.value.mul_(0.9).add_(loss)
        time.sleep(0.1)
        if step % 10 == 0:
            ema.synchronise(step)
            dist.monitored_barrier()
            print(f"rank {rank} step {step} ema {ema.value[0].item():.3f}", flush=True)


main()
