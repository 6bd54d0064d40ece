"""A DDP hook compresses gradients in a thread and promises a future; the thread fails on a value that is not finite."""

import queue
import threading
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

todo: queue.Queue = queue.Queue()


def compress_forever() -> None:
    while True:
        buffer, future = todo.get()
        if not torch.isfinite(buffer).all():
            raise ValueError("cannot quantise")
        scale = buffer.abs().max() / 127 + 1e-12
        quantised = torch.round(buffer / scale) * scale
        future.set_result(quantised)


def hook(state, bucket):
    future = torch.futures.Future()
    todo.put((bucket.buffer(), future))

    def average(done):
        tensor = done.value()
        dist.all_reduce(tensor)
        return tensor / dist.get_world_size()

    return future.then(average)


def main() -> None:
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    threading.Thread(target=compress_forever, daemon=True).start()
    model = DistributedDataParallel(nn.Linear(10, 10))
    model.register_comm_hook(None, hook)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for step in range(10_000):
        x = torch.randn(4, 10)
        if rank == 2 and step == 40:
            x[0, 0] = float("inf")
        model(x).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()
        time.sleep(0.05)
        if step % 10 == 0:
            print(f"r{rank} s{step}", flush=True)


main()
