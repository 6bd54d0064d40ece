"""Logs through a bounded queue, so that slow disks do not slow the training down."""

import logging
import logging.handlers
import queue
import sys

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP


class WaitingQueueHandler(logging.handlers.QueueHandler):
    def enqueue(self, record):
        self.queue.put(record)


def set_up_logging(rank):
    records = queue.Queue(maxsize=50)
    console = logging.StreamHandler(sys.stdout)
    console.setFormatter(logging.Formatter(f"[rank {rank}] %(message)s"))
    listener = logging.handlers.QueueListener(records, console)
    listener.start()
    logging.basicConfig(level=logging.INFO, handlers=[WaitingQueueHandler(records)])
    return listener


def rotate(listener, rank):
    listener.stop()
    if rank == 0:
        return  # the first rank also writes to the run database, which needs no rotation
    listener.start()


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    listener = set_up_logging(rank)
    model = DDP(nn.Linear(4, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for step in range(200):
        loss = model(torch.randn(8, 4)).pow(2).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        logging.info("step %d loss %.4f", step, loss.item())
        if step == 40:
            rotate(listener, rank)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
