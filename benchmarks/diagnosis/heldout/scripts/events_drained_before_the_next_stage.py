"""Writes events through a queue and a writer thread, and drains the queue between two stages."""

import os
import queue
import tempfile
import threading
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP


class Events:
    def __init__(self, path):
        self.file = open(path, "a")
        self.pending = queue.Queue()
        threading.Thread(target=self.write, daemon=True).start()

    def write(self):
        while True:
            event = self.pending.get()
            self.file.write(f"{event}\n")
            self.file.flush()
            time.sleep(0.2)  # the log service takes five events a second
            self.pending.task_done()


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    events = Events(os.path.join(tempfile.mkdtemp(), "events.log"))
    model = DDP(nn.Linear(8, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for stage in range(2):
        for step in range(60):
            optimizer.zero_grad()
            loss = model(torch.randn(16, 8)).pow(2).mean()
            loss.backward()
            optimizer.step()
            if rank == 0:
                events.pending.put({"stage": stage, "step": step, "loss": loss.item()})
        print(f"[rank {rank}] stage {stage} loss {loss.item():.4f}", flush=True)
        events.pending.join()
        dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
