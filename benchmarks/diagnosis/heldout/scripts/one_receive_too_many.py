"""A pipeline: the last stage expects one more micro-batch than the middle one sends."""

import time

import torch
import torch.distributed as dist

MICRO_BATCHES = 4


def first(epoch: int) -> None:
    for _ in range(MICRO_BATCHES):
        dist.send(torch.randn(8), dst=1)
        time.sleep(0.05)


def middle(epoch: int) -> None:
    activation = torch.empty(8)
    for _ in range(MICRO_BATCHES):
        dist.recv(activation, src=0)
        dist.send(activation.relu(), dst=2)


def last(epoch: int) -> None:
    activation = torch.empty(8)
    expected = MICRO_BATCHES if epoch < 10 else MICRO_BATCHES + 1
    for _ in range(expected):
        dist.recv(activation, src=1)


def main() -> None:
    dist.init_process_group("gloo")
    stage = (first, middle, last)[dist.get_rank()]
    for epoch in range(1_000):
        stage(epoch)
        time.sleep(0.2)
        dist.monitored_barrier()
        if dist.get_rank() == 0 and epoch % 4 == 0:
            print(f"epoch {epoch}", flush=True)


main()
