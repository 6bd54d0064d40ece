"""All ranks pause on purpose between two epochs, to let the machine cool."""

import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

COOL_DOWN = 16


def main() -> None:
    dist.init_process_group("gloo")
    model = DistributedDataParallel(nn.Linear(10, 10))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for epoch in range(2):
        for _ in range(30):
            optimizer.zero_grad()
            model(torch.randn(4, 10)).sum().backward()
            optimizer.step()
            time.sleep(0.1)
        print(f"rank {dist.get_rank()} epoch {epoch}", flush=True)
        if epoch == 0:
            time.sleep(COOL_DOWN)
    dist.destroy_process_group()


main()
