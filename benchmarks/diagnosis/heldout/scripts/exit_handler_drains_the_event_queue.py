"""Rank 0 joins its event queue in an exit handler; its writer takes a while for each event, and the others have ended."""

import atexit
import queue
import threading
import time

import torch
import torch.distributed as dist

events: "queue.Queue[int]" = queue.Queue()


def write() -> None:
    while True:
        events.get()
        time.sleep(1.2)
        events.task_done()


def main() -> None:
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    if rank == 0:
        threading.Thread(target=write, daemon=True).start()
        atexit.register(events.join)
    for step in range(60):
        dist.all_reduce(torch.rand(3))
        time.sleep(0.05)
        if step % 4 == 0 and rank == 0:
            events.put(step)
    dist.destroy_process_group()


main()
