"""A program is spawned with its input from a FIFO; the writer comes after a while, and the rank waits in the kernel."""

import os
import subprocess
import tempfile
import time

import torch
import torch.distributed as dist


def main() -> None:
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    with tempfile.TemporaryDirectory() as folder:
        source = os.path.join(folder, "records")
        os.mkfifo(source)
        for step in range(60):
            dist.all_reduce(torch.rand(3))
            time.sleep(0.05)
            if rank == 1 and step == 40:
                writer = subprocess.Popen(["sh", "-c", f"sleep 15; echo record > {source}"])
                actions = [(os.POSIX_SPAWN_OPEN, 0, source, os.O_RDONLY, 0)]
                reader = os.posix_spawn("/bin/cat", ["cat"], os.environ, file_actions=actions)
                os.waitpid(reader, 0)
                writer.wait()
    dist.destroy_process_group()


main()
