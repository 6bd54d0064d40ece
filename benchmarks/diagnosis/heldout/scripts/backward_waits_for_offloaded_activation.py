"""An autograd function offloads activations to a thread; the thread lost one, and backward waits for it."""

import queue
import threading
import time

import torch
import torch.distributed as dist

outgoing: queue.Queue = queue.Queue()
incoming: queue.Queue = queue.Queue()


def offload(keep: int) -> None:
    for _ in range(keep):
        incoming.put(outgoing.get().clone())


class Offloaded(torch.autograd.Function):
    @staticmethod
    def forward(ctx, inputs: torch.Tensor) -> torch.Tensor:
        outgoing.put(inputs.detach())
        return inputs.square()

    @staticmethod
    def backward(ctx, gradient: torch.Tensor) -> torch.Tensor:
        return 2 * incoming.get() * gradient


class Net(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.scale = torch.nn.Parameter(torch.rand(4))

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        return Offloaded.apply(self.scale * inputs).sum()


dist.init_process_group("gloo")
rank = dist.get_rank()
threading.Thread(target=offload, args=(36 if rank == 2 else 100_000,), daemon=True).start()
model = torch.nn.parallel.DistributedDataParallel(Net())
for step in range(100_000):
    model(torch.rand(4)).backward()
    time.sleep(0.1)
    if rank == 1:
        print("step", step, flush=True)
