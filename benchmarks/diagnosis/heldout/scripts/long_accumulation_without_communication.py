"""Accumulates gradients over many micro batches between two exchanges."""

import contextlib
import time

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP


def big_step(model, opt, micro_batches, size):
    for i in range(micro_batches):
        last = i == micro_batches - 1
        with contextlib.nullcontext() if last else model.no_sync():
            loss = model(torch.randn(size, 256)).pow(2).mean() / micro_batches
            loss.backward()
    opt.step()
    opt.zero_grad()
    return loss.item()


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.set_num_threads(1)
    layers = [torch.nn.Linear(256, 256) for _ in range(4)]
    model = DDP(torch.nn.Sequential(*layers))
    opt = torch.optim.SGD(model.parameters(), lr=0.01)
    for step in range(12):
        big_step(model, opt, 2, 16)
        time.sleep(0.2)
    print(f"rank {rank}: now with large batches")
    start = time.time()
    loss = big_step(model, opt, 900, 256)
    print(f"rank {rank}: large step, loss {loss:.6f}, {time.time() - start:.1f} s")
    for step in range(10):
        big_step(model, opt, 2, 16)
        time.sleep(0.2)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
