"""Rank 0 renews the cache with the lock of the manifest inside, rank 2 the manifest with the lock of the cache inside."""

import fcntl
import tempfile
import time

import torch
import torch.distributed as dist


class Lock:
    def __init__(self, path: str) -> None:
        self.path = path

    def __enter__(self) -> None:
        self.file = open(self.path, "w")
        fcntl.flock(self.file, fcntl.LOCK_EX)

    def __exit__(self, *error) -> None:
        self.file.close()


def main() -> None:
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    folder = [tempfile.mkdtemp() if rank == 0 else None]
    dist.broadcast_object_list(folder)
    cache, manifest = Lock(folder[0] + "/cache"), Lock(folder[0] + "/manifest")
    for step in range(10_000):
        dist.all_reduce(torch.rand(10))
        time.sleep(0.1)
        if rank == 0 and step % 20 == 0:
            with cache:
                time.sleep(0.3)
                with manifest:
                    print("cache renewed", flush=True)
        if rank == 2 and step % 60 == 40:
            with manifest:
                time.sleep(0.3)
                with cache:
                    print("manifest renewed", flush=True)


main()
