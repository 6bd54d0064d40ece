"""Every rank reads through a cache folder that is guarded by a file lock."""

import contextlib
import fcntl
import os
import tempfile
import time

import torch
import torch.distributed as dist


@contextlib.contextmanager
def file_lock(path):
    with open(path, "w") as f:
        fcntl.flock(f, fcntl.LOCK_EX)
        yield


def build_cache(folder, rank):
    with file_lock(os.path.join(folder, "lock")):
        for i in range(5):
            time.sleep(1)  # one archive after the other
            with open(os.path.join(folder, f"{rank}_{i}.txt"), "w") as f:
                f.write("x" * 1000)


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    box = [tempfile.mkdtemp() if rank == 0 else None]
    dist.broadcast_object_list(box)
    w = torch.zeros(10)
    for step in range(30):
        g = torch.rand(10)
        dist.all_reduce(g)
        w += g
        time.sleep(0.2)
        if step == 12:
            build_cache(box[0], rank)
            print(f"rank {rank} has its cache")
    print(f"rank {rank} finished, w {w.mean():.2f}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
