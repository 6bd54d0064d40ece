"""A native library's threads meet at a pthread barrier that was made for one thread more."""

import ctypes
import threading
import time

import torch
import torch.distributed as dist

libc = ctypes.CDLL(None)


class Team:
    def __init__(self, size: int) -> None:
        self.barrier = ctypes.create_string_buffer(64)
        libc.pthread_barrier_init(self.barrier, None, size)

    def meet(self) -> None:
        libc.pthread_barrier_wait(self.barrier)


def main() -> None:
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    for step in range(100_000):
        dist.all_reduce(torch.rand(3))
        time.sleep(0.1)
        if rank == 2 and step in (20, 40):
            team = Team(2 if step == 20 else 3)
            helper = threading.Thread(target=team.meet, daemon=True)
            helper.start()
            team.meet()


main()
