"""A POSIX named semaphore guards a licence; its owner died without giving it back."""

import ctypes
import os
import time

import torch
import torch.distributed as dist

libc = ctypes.CDLL(None, use_errno=True)
libc.sem_open.restype = ctypes.c_void_p


class Licence:
    def __init__(self, seats: int) -> None:
        name = f"/licence-{os.getpid()}".encode()
        self.semaphore = ctypes.c_void_p(libc.sem_open(name, os.O_CREAT, 0o600, seats))
        libc.sem_unlink(name)

    def __enter__(self) -> None:
        libc.sem_wait(self.semaphore)

    def __exit__(self, *error) -> None:
        libc.sem_post(self.semaphore)


def solver_that_crashes(licence: Licence) -> None:
    child = os.fork()
    if child == 0:
        licence.__enter__()
        os._exit(1)
    os.waitpid(child, 0)


def main() -> None:
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    licence = Licence(seats=1)
    for step in range(100_000):
        if rank == 1 and step == 35:
            solver_that_crashes(licence)
        with licence:
            solution = torch.linalg.solve(torch.eye(4), torch.ones(4))
        dist.all_reduce(solution)
        time.sleep(0.1)
        if rank == 0 and step % 10 == 0:
            print("step", step, flush=True)


main()
