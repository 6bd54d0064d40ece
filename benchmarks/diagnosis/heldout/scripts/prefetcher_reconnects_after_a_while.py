"""A prefetch thread reads batches from a stream and connects again when the stream breaks."""

import queue
import threading
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP


class Stream:
    def __init__(self, breaks_at):
        self.position = 0
        self.breaks_at = breaks_at

    def read(self):
        if self.position == self.breaks_at:
            self.breaks_at = None
            raise ConnectionResetError("stream was reset")
        self.position += 1
        return torch.full((16, 8), self.position / 100)


def prefetch(stream, batches):
    pause = 13
    while True:
        try:
            batches.put(stream.read())
        except ConnectionResetError:
            time.sleep(pause)


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    batches = queue.Queue(maxsize=4)
    stream = Stream(breaks_at=25 if rank == 0 else None)
    threading.Thread(target=prefetch, args=(stream, batches), daemon=True).start()
    model = DDP(nn.Linear(8, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for step in range(50):
        inputs = batches.get()
        optimizer.zero_grad()
        loss = model(inputs).pow(2).mean()
        loss.backward()
        optimizer.step()
        if step % 10 == 0:
            print(f"[rank {rank}] step {step} loss {loss.item():.4f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
