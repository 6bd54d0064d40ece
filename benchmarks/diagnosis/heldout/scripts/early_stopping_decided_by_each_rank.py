"""Trains with early stopping on the validation loss."""

import time

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP


class EarlyStopping:
    def __init__(self, patience):
        self.patience = patience
        self.best = float("inf")
        self.bad = 0

    def should_stop(self, value):
        if value < self.best:
            self.best, self.bad = value, 0
        else:
            self.bad += 1
        return self.bad >= self.patience


def validate(rank, epoch):
    return 1.0 / (epoch + 1) if rank != 2 else 0.5 + 0.01 * epoch


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    saving = dist.new_group(backend="gloo")
    model = DDP(torch.nn.Linear(20, 20))
    opt = torch.optim.SGD(model.parameters(), lr=1e-2)
    stop = EarlyStopping(patience=4)
    for epoch in range(100):
        for _ in range(4):
            opt.zero_grad()
            loss = model(torch.randn(8, 20)).abs().mean()
            loss.backward()
            opt.step()
            time.sleep(0.12)
        val = validate(rank, epoch)
        print(f"rank {rank} epoch {epoch} loss {loss.item():.3f} val {val:.3f}")
        if stop.should_stop(val):
            print(f"rank {rank}: stopping early")
            break
    dist.barrier(group=saving)
    if rank == 0:
        print("saving the final model")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
