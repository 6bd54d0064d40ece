"""The first rank loads the data under a lock and calls the barrier inside it; the others want the lock first."""

import tempfile
import time

import filelock
import torch
import torch.distributed as dist


def main() -> None:
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    place = [tempfile.gettempdir() + f"/hub-{time.time_ns()}.lock" if rank == 0 else None]
    dist.broadcast_object_list(place)
    lock = filelock.FileLock(place[0])
    if rank == 0:
        with lock:
            time.sleep(2)
            print("downloaded", flush=True)
            dist.barrier()
    else:
        time.sleep(1)
        with lock:
            print("cached", flush=True)
        dist.barrier()
    for step in range(1000):
        dist.all_reduce(torch.rand(3))
    dist.destroy_process_group()


main()
