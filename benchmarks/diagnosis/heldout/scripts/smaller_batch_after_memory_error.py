"""Halves the micro batch and repeats the step when it does not fit into memory."""

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

LENGTHS = [[128, 256, 128, 256, 128, 256], [128, 128, 256, 4096, 128, 256], [256, 128, 256, 128, 256, 128]]


def training_step(model, optimizer, length, micro_batch):
    optimizer.zero_grad()
    for _ in range(0, 8, micro_batch):
        if micro_batch * length > 16_384:
            raise MemoryError(f"cannot allocate {micro_batch * length * 4} bytes")
        loss = model(torch.randn(micro_batch, 8)).pow(2).mean()
        loss.backward()
    optimizer.step()
    return loss.item()


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    model = DDP(nn.Linear(8, 8))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    micro_batch = 8
    for step, length in enumerate(LENGTHS[rank]):
        while True:
            try:
                loss = training_step(model, optimizer, length, micro_batch)
                break
            except MemoryError as error:
                micro_batch //= 2
                print(f"[rank {rank}] {error}; micro batch is {micro_batch} now", flush=True)
        print(f"[rank {rank}] step {step} length {length} loss {loss:.4f}", flush=True)
    losses = [None] * dist.get_world_size()
    dist.all_gather_object(losses, loss)
    print(f"[rank {rank}] final losses {losses}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
