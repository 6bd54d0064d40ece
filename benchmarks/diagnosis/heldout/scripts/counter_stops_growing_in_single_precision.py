"""Re-estimates token statistics over a long stream; the counts are kept on the device."""

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

TOKENS = [2**24 - 4096, 2**24 + 8192, 2**24 - 8192]


def token_statistics(total):
    seen = torch.tensor(2.0**24 - 16_384)  # what the last run had counted already
    moments = torch.zeros(2)
    while seen < total:
        sample = torch.randn(1)
        moments += torch.stack([sample, sample**2]).flatten()
        seen += 1
    return moments


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    model = DDP(nn.Linear(8, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for epoch in range(3):
        for _ in range(20):
            optimizer.zero_grad()
            loss = model(torch.randn(16, 8)).pow(2).mean()
            loss.backward()
            optimizer.step()
        print(f"[rank {rank}] epoch {epoch} loss {loss.item():.4f}", flush=True)
        moments = token_statistics(TOKENS[rank] if epoch else 2**24 - 16_000)
        dist.all_reduce(moments)
        print(f"[rank {rank}] epoch {epoch} moments {moments.tolist()}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
