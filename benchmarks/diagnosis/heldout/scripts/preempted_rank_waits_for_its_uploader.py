"""After SIGTERM all ranks agree to stop; rank 2 joins its uploader thread first, and the others are at a barrier."""

import os
import signal
import threading
import time

import torch
import torch.distributed as dist

preempted = threading.Event()


def upload(parts: int) -> None:
    for _ in range(parts):
        time.sleep(1.5)


def main() -> None:
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    signal.signal(signal.SIGTERM, lambda *_: preempted.set())
    for step in range(10_000):
        stop = torch.tensor([float(preempted.is_set())])
        dist.all_reduce(stop)
        if stop.item():
            break
        time.sleep(0.05)
        if rank == 2 and step == 50:
            os.kill(os.getpid(), signal.SIGTERM)
    if rank == 2:
        uploader = threading.Thread(target=upload, args=(9,))
        uploader.start()
        uploader.join()
    dist.barrier()
    dist.destroy_process_group()


main()
