"""Three children of one rank meet at a barrier; the last of them comes after fifteen seconds."""

import multiprocessing
import time

import torch
import torch.distributed as dist

fork = multiprocessing.get_context("fork")


def shuffle(part: int, meeting) -> None:
    until = time.monotonic() + (0.1, 4, 15)[part]
    while time.monotonic() < until:
        sum(range(1000))
        time.sleep(0.01)
    meeting.wait()


def main() -> None:
    dist.init_process_group("gloo")
    for step in range(10):
        dist.all_reduce(torch.rand(16))
    if dist.get_rank() == 1:
        meeting = fork.Barrier(3)
        children = [fork.Process(target=shuffle, args=(part, meeting)) for part in range(3)]
        for child in children:
            child.start()
        for child in children:
            child.join()
    dist.barrier()
    dist.destroy_process_group()


main()
