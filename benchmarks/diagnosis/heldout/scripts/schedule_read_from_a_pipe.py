"""Reads the learning rate for the next phase from a control file in the run folder."""

import os
import tempfile

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP


def read_learning_rate(folder):
    with open(os.path.join(folder, "learning_rate")) as control:
        return float(control.read())


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    folder = tempfile.mkdtemp()
    control = os.path.join(folder, "learning_rate")
    if rank == 1:
        os.mkfifo(control)
    else:
        with open(control, "w") as file:
            file.write("0.01")
    model = DDP(nn.Linear(4, 4))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for phase in range(2):
        for _ in range(10):
            loss = model(torch.randn(8, 4)).pow(2).mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        print(f"[rank {rank}] phase {phase} loss {loss.item():.4f}", flush=True)
        for group in optimizer.param_groups:
            group["lr"] = read_learning_rate(folder)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
