"""Renders previews in a small thread pool; what is left at the end of an epoch is thrown away."""

import time
from concurrent.futures import ThreadPoolExecutor, wait

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP


def render(weights):
    time.sleep(0.4)
    return (weights * 255).clamp(0, 255).to(torch.uint8)


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    model = DDP(nn.Linear(16, 16))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for epoch in range(3):
        previews = []
        pool = ThreadPoolExecutor(max_workers=1)
        for step in range(8):
            optimizer.zero_grad()
            loss = model(torch.randn(4, 16)).pow(2).mean()
            loss.backward()
            optimizer.step()
            if rank == 0:
                previews.append(pool.submit(render, model.module.weight.detach().clone()))
            time.sleep(0.1)
            if step % 2 == 0:
                print(f"[rank {rank}] epoch {epoch} step {step} loss {loss.item():.4f}", flush=True)
        pool.shutdown(wait=True, cancel_futures=True)
        done, _ = wait(previews)
        print(f"[rank {rank}] epoch {epoch} loss {loss.item():.4f}, {len(done)} previews", flush=True)
        dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
