"""At the end of an epoch a rank waits until its writer has written twenty records, each in 0.8 seconds."""

import queue
import threading
import time

import torch
import torch.distributed as dist

records: "queue.Queue[float]" = queue.Queue()


def write() -> None:
    while True:
        records.get()
        time.sleep(0.8)  # a slow file system
        records.task_done()


def main() -> None:
    dist.init_process_group("gloo")
    threading.Thread(target=write, name="writer", daemon=True).start()
    for step in range(20):
        loss = torch.rand(1)
        if dist.get_rank() == 1:
            records.put(loss.item())
        dist.all_reduce(loss)
    records.join()
    dist.barrier()
    dist.destroy_process_group()


main()
