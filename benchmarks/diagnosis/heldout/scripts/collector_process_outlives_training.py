"""Collects losses in a separate process, which prints a running mean."""

import multiprocessing as mp
import queue

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP


def collect(losses):
    seen = []
    while True:
        try:
            loss = losses.get(timeout=1)
        except queue.Empty:
            if mp.parent_process().is_alive():
                continue
            break
        if loss is None:
            break
        seen.append(loss)
        if len(seen) % 20 == 0:
            print(f"mean loss {sum(seen) / len(seen):.4f}", flush=True)


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    losses = mp.Queue()
    if rank == 1:
        mp.Process(target=collect, args=(losses,)).start()
    model = DDP(nn.Linear(8, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for _ in range(60):
        optimizer.zero_grad()
        loss = model(torch.randn(16, 8)).pow(2).mean()
        loss.backward()
        optimizer.step()
        if rank == 1:
            losses.put(loss.item())
    print(f"[rank {rank}] training finished", flush=True)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
