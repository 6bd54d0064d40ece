"""Stages hand activations on by send and recv. The first one's source gives nothing for a while: a condition says when."""

import threading
import time

import torch
import torch.distributed as dist


class Source:
    def __init__(self) -> None:
        self.ready = threading.Condition()
        self.opens = 0.0

    def take(self) -> torch.Tensor:
        with self.ready:
            while (left := self.opens - time.monotonic()) > 0:
                self.ready.wait(left)
        return torch.rand(8)


def main() -> None:
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    source = Source()
    for step in range(60):
        if step == 40:
            source.opens = time.monotonic() + 15
        batch = torch.zeros(8)
        if rank == 0:
            batch = source.take()
        else:
            dist.recv(batch, src=rank - 1)
        if rank + 1 < world:
            dist.send(batch * 2, dst=rank + 1)
        time.sleep(0.05)
    dist.barrier()
    dist.destroy_process_group()


main()
