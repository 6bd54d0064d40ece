"""Local SGD: each rank trains alone for a while, then the models are averaged every few steps."""

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.algorithms.model_averaging.averagers import PeriodicModelAverager


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(0)
    model = nn.Linear(8, 1)
    for parameter in model.parameters():
        dist.broadcast(parameter.data, src=0)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    restarted = rank == 2  # its machine was replaced, so its optimizer warms up again
    averager = PeriodicModelAverager(period=4, warmup_steps=24 if restarted else 8)
    for step in range(48):
        optimizer.zero_grad()
        loss = model(torch.randn(16, 8)).pow(2).mean()
        loss.backward()
        optimizer.step()
        averager.average_parameters(model.parameters())
        if step % 8 == 7:
            print(f"[rank {rank}] step {step} loss {loss.item():.4f}", flush=True)
    result = [None] * dist.get_world_size()
    dist.all_gather_object(result, round(loss.item(), 4))
    print(f"[rank {rank}] final losses {result}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
