"""The ranks meet at a monitored barrier after an evaluation of unequal lengths."""

import time
from datetime import timedelta

import torch
import torch.distributed as dist


@torch.no_grad()
def evaluate(seconds: float) -> float:
    model, end, values = torch.nn.GRU(16, 16), time.monotonic() + seconds, []
    while time.monotonic() < end:
        values.append(model(torch.randn(10, 2, 16))[0].mean().item())
    return sum(values) / len(values)


def main() -> None:
    torch.set_num_threads(1)
    dist.init_process_group("gloo", timeout=timedelta(minutes=20))
    rank = dist.get_rank()
    for epoch in range(3):
        for _ in range(20):
            dist.all_reduce(torch.randn(20))
            time.sleep(0.1)
        lengths = (0.5, 15, 1) if epoch == 1 else (0.1, 0.1, 0.1)
        print(f"rank {rank} epoch {epoch} mean {evaluate(lengths[rank]):.3f}", flush=True)
        dist.monitored_barrier(timeout=timedelta(minutes=5))
    dist.destroy_process_group()


main()
