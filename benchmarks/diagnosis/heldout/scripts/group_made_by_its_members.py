"""Ranks 1 and 2 share an auxiliary head, whose gradients they reduce in a group of their own."""

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    model = DDP(nn.Linear(8, 4))
    head = nn.Linear(4, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for step in range(8):
        optimizer.zero_grad()
        model(torch.randn(8, 8)).pow(2).mean().backward()
        optimizer.step()
        print(f"[rank {rank}] warm-up step {step}", flush=True)
    head_group = dist.new_group([1, 2]) if rank in (1, 2) else None
    metric_group = dist.new_group(list(range(dist.get_world_size())))
    for step in range(20):
        optimizer.zero_grad()
        hidden = model(torch.randn(8, 8))
        loss = hidden.pow(2).mean()
        if head_group is not None:
            loss = loss + head(hidden).pow(2).mean()
        loss.backward()
        if head_group is not None:
            dist.all_reduce(head.weight.grad, group=head_group)
        metric = loss.detach()
        dist.all_reduce(metric, group=metric_group)
        print(f"[rank {rank}] step {step} loss {metric.item():.4f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
