"""Trains a retriever; after the first epoch the first rank scores all candidates with the full model."""

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP


@torch.no_grad()
def mean_rank(model, queries, candidates):
    positions = []
    keys = model(candidates)
    for query in model(queries).split(1):
        scores = torch.cdist(query, keys, p=1.5)
        positions.append(scores.argsort().argmin().item())
    return sum(positions) / len(positions)


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(0)
    model = DDP(nn.Linear(64, 64))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for epoch in range(2):
        for _ in range(20):
            optimizer.zero_grad()
            loss = model(torch.randn(16, 64)).pow(2).mean()
            loss.backward()
            optimizer.step()
        print(f"[rank {rank}] epoch {epoch} loss {loss.item():.4f}", flush=True)
        if rank == 0 and epoch == 0:
            score = mean_rank(model.module, torch.randn(1600, 64), torch.randn(20_000, 64))
            print(f"mean rank of the first candidate {score:.1f}", flush=True)
        dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
