"""Keeps an index file of finished samples, guarded by a file lock."""

import contextlib
import fcntl
import os
import tempfile
import time

import torch
import torch.distributed as dist


@contextlib.contextmanager
def locked(path):
    with open(path + ".lock", "w") as f:
        fcntl.flock(f, fcntl.LOCK_EX)
        try:
            yield
        finally:
            fcntl.flock(f, fcntl.LOCK_UN)


def append(path, line):
    with locked(path):
        with open(path, "a") as f:
            f.write(line + "\n")


def compact(path):
    with locked(path):
        lines = open(path).read().split("\n")
        os.remove(path)
        for line in sorted(set(lines)):
            if line.endswith("!"):
                append(path, line)
            else:
                with open(path, "a") as f:
                    f.write(line + "\n")


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    path = os.path.join(tempfile.mkdtemp(), f"index_{rank}.txt")
    x = torch.rand(64)
    for step in range(300):
        dist.all_reduce(x)
        x /= 3
        mark = "!" if rank == 0 and step == 17 else ""
        append(path, f"step {step}{mark}")
        if step % 10 == 9:
            compact(path)
            print(f"rank {rank}: compacted after {step}")
        time.sleep(0.2)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
