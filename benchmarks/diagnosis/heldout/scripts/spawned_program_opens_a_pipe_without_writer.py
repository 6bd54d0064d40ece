"""A program is spawned with its input from a FIFO that nobody writes: the spawning thread waits inside the kernel."""

import os
import tempfile
import time

import torch
import torch.distributed as dist


def start_filter(source: str) -> int:
    actions = [(os.POSIX_SPAWN_OPEN, 0, source, os.O_RDONLY, 0)]
    return os.posix_spawn("/bin/cat", ["cat"], os.environ, file_actions=actions)


def main() -> None:
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    with tempfile.TemporaryDirectory() as folder:
        source = os.path.join(folder, "records")
        os.mkfifo(source)
        for step in range(100_000):
            dist.all_reduce(torch.rand(3))
            time.sleep(0.1)
            if rank == 2 and step == 40:
                start_filter(source)


main()
