"""An activation is on a slow disk: in one backward pass rank 2 waits for a thread that reads it in pieces."""

import time
from concurrent.futures import Future, ThreadPoolExecutor

import torch
import torch.distributed as dist

disk = ThreadPoolExecutor(1, thread_name_prefix="disk")


def read_back(tensor: torch.Tensor, pieces: int) -> torch.Tensor:
    for _ in range(pieces):
        time.sleep(0.75)
    return tensor


class Offload:
    """Hooks for torch.autograd.graph.saved_tensors_hooks."""

    def __init__(self, pieces: int) -> None:
        self.pieces = pieces

    def pack(self, tensor: torch.Tensor) -> Future:
        pieces, self.pieces = self.pieces, 0
        return disk.submit(read_back, tensor, pieces)

    def unpack(self, stored: Future) -> torch.Tensor:
        return stored.result()


def main() -> None:
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    weight = torch.rand(5, requires_grad=True)
    for step in range(50):
        offload = Offload(pieces=18 if (rank, step) == (2, 35) else 0)
        with torch.autograd.graph.saved_tensors_hooks(offload.pack, offload.unpack):
            loss = weight.exp().sum()
        loss.backward()
        dist.all_reduce(weight.grad)
        weight.grad = None
        time.sleep(0.1)
        if rank == 1 and step % 10 == 0:
            print("step", step, flush=True)
    dist.destroy_process_group()


main()
