"""Saves checkpoints with a limited bandwidth, so that the shared file system stays usable for others."""

import io
import os
import tempfile
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP


class Throttled(io.RawIOBase):
    """A file that takes so many bytes a second."""

    def __init__(self, path, rate):
        self.file = open(path, "wb")
        self.rate = rate

    def writable(self):
        return True

    def write(self, data):
        view = memoryview(data).cast("B")
        for start in range(0, len(view), 4096):
            piece = view[start : start + 4096]
            self.file.write(piece)
            time.sleep(len(piece) / self.rate)
        return len(view)

    def close(self):
        self.file.close()
        super().close()


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    model = DDP(nn.Linear(256, 256))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for epoch in range(2):
        for _ in range(20):
            optimizer.zero_grad()
            loss = model(torch.randn(16, 256)).pow(2).mean()
            loss.backward()
            optimizer.step()
        print(f"[rank {rank}] epoch {epoch} loss {loss.item():.4f}", flush=True)
        if rank == 0:
            path = os.path.join(tempfile.gettempdir(), f"throttled-{os.getpid()}.pt")
            with Throttled(path, rate=24_000) as file:
                torch.save(model.module.state_dict(), file)
            print(f"saved {os.path.getsize(path)} bytes", flush=True)
            os.remove(path)
        dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
