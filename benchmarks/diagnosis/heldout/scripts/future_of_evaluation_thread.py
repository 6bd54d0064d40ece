"""Rank 0's main thread waits for the future of an evaluation that computes in a thread."""

import time
from concurrent.futures import ThreadPoolExecutor

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP


def evaluate(model: nn.Module, seconds: float) -> float:
    end, hits, count = time.monotonic() + seconds, 0, 0
    with torch.no_grad():
        while time.monotonic() < end:
            hits += int((model(torch.randn(256, 20)).argmax(1) == 0).sum())
            count += 256
    return hits / count


def main() -> None:
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    net = nn.Sequential(nn.Linear(20, 64), nn.ReLU(), nn.Linear(64, 4))
    model = DDP(net)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with ThreadPoolExecutor(1, thread_name_prefix="eval") as pool:
        for step in range(1, 61):
            optimizer.zero_grad()
            model(torch.randn(8, 20)).logsumexp(1).mean().backward()
            optimizer.step()
            time.sleep(0.1)
            if step % 10 == 0:
                print(f"rank {rank} step {step}", flush=True)
            if step == 30 and rank == 0:
                future = pool.submit(evaluate, net, 13)
                print(f"accuracy {future.result():.3f}", flush=True)
    dist.destroy_process_group()


main()
