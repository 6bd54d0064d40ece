"""Augments samples in a thread pool."""

import time
from concurrent.futures import ThreadPoolExecutor

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP

pool = ThreadPoolExecutor(max_workers=2)


def flip(x):
    return x.flip(-1)


def augment(x, mix):
    if mix:
        partner = pool.submit(flip, x)
        time.sleep(0.02)
        return 0.5 * (x + partner.result())
    return flip(x)


def make_batch(size, mix):
    samples = [torch.randn(24) for _ in range(size)]
    return torch.stack(list(pool.map(augment, samples, [mix] * size)))


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    model = DDP(torch.nn.Linear(24, 24))
    opt = torch.optim.SGD(model.parameters(), lr=0.01)
    for step in range(300):
        mix = rank == 1 and step >= 20  # mixing begins earlier on this rank by its own config
        batch = make_batch(8, mix)
        loss = (model(batch) - batch).pow(2).mean()
        loss.backward()
        opt.step()
        opt.zero_grad()
        time.sleep(0.2)
        if step % 5 == 0 and rank == 0:
            print(f"step {step}: {loss.item():.4f}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
