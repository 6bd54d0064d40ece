"""Rank 0 serves a work list through a manager; rank 1 asks for one item more than there are."""

import os
import queue
import threading
import time
from multiprocessing.managers import BaseManager

import torch
import torch.distributed as dist

items: "queue.Queue[int]" = queue.Queue()
ADDRESS = f"/tmp/work-list-{os.environ['MASTER_PORT']}"


class WorkList(BaseManager):
    pass


def main() -> None:
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    if rank == 0:
        for number in range(61):
            items.put(number)
        WorkList.register("items", callable=lambda: items)
        server = WorkList(address=ADDRESS, authkey=b"work").get_server()
        threading.Thread(target=server.serve_forever, daemon=True).start()
    dist.barrier()
    if rank == 1:
        WorkList.register("items")
        manager = WorkList(address=ADDRESS, authkey=b"work")
        manager.connect()
        served = manager.items()
    for step in range(100_000):
        batch = torch.tensor([float(served.get())]) if rank == 1 else torch.rand(1)
        dist.all_reduce(batch)
        time.sleep(0.1)


main()
