"""Training is over and the others have ended; the first rank tests the model for twenty seconds more."""

import time

import torch
import torch.distributed as dist


def main() -> None:
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    for step in range(20):
        dist.all_reduce(torch.rand(16))
    dist.destroy_process_group()
    if rank == 0:
        model, right = torch.nn.Linear(32, 4), 0
        until = time.monotonic() + 20
        while time.monotonic() < until:
            right += int((model(torch.rand(64, 32)).argmax(1) == 2).sum())
            time.sleep(0.005)
        print(right)


main()
