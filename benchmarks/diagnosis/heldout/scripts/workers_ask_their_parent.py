"""The loader's workers ask the training process for the current augmentation strength."""

import ctypes
import multiprocessing as mp
import signal

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, Dataset


class Augmented(Dataset):
    def __init__(self, ask=None):
        self.ask = ask

    def __len__(self):
        return 64

    def __getitem__(self, index):
        strength = 0.1
        if self.ask is not None and index % 16 == 0:
            self.ask.send(index)
            strength = self.ask.recv()
        return strength * torch.randn(4)


def end_with_parent(_):
    ctypes.CDLL(None).prctl(1, signal.SIGTERM)


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    model = DDP(nn.Linear(4, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for epoch in range(3):
        adaptive = rank == 2 and epoch > 0  # the last rank tries the adaptive schedule after a warm-up
        parent, child = mp.Pipe()
        dataset = Augmented(child if adaptive else None)
        loader = DataLoader(dataset, batch_size=8, num_workers=1, worker_init_fn=end_with_parent)
        for step, inputs in enumerate(loader):
            while adaptive and parent.poll():
                parent.recv()
                parent.send(0.1 + 0.05 * epoch)
            optimizer.zero_grad()
            model(inputs).pow(2).mean().backward()
            optimizer.step()
            print(f"[rank {rank}] epoch {epoch} step {step}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
