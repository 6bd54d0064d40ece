"""Limits how many decoded samples may be in flight between the loader's workers and the training loop."""

import ctypes
import multiprocessing as mp
import signal

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, Dataset


class Volumes(Dataset):
    def __init__(self, budget):
        self.budget = budget

    def __len__(self):
        return 160

    def __getitem__(self, index):
        self.budget.acquire()
        return torch.randn(8)


def end_with_parent(_):
    ctypes.CDLL(None).prctl(1, signal.SIGTERM)


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    # the first rank shares its memory with the evaluation and gets a smaller budget
    budget = mp.Semaphore(32 if rank == 0 else 1024)
    loader = DataLoader(Volumes(budget), batch_size=4, num_workers=2, worker_init_fn=end_with_parent)
    model = DDP(nn.Linear(8, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for epoch in range(2):
        for step, inputs in enumerate(loader):
            optimizer.zero_grad()
            loss = model(inputs).pow(2).mean()
            loss.backward()
            optimizer.step()
            budget.release()
            print(f"[rank {rank}] epoch {epoch} step {step} loss {loss.item():.4f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
