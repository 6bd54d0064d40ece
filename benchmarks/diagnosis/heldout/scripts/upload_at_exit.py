"""At its exit, rank 0 waits for the thread that uploads its logs; the other ranks have ended."""

import atexit
import queue
import threading
import time

import torch
import torch.distributed as dist


class Uploader:
    def __init__(self) -> None:
        self.files: queue.Queue[str | None] = queue.Queue()
        self.thread = threading.Thread(target=self.work, daemon=True)
        self.thread.start()
        atexit.register(self.finish)

    def work(self) -> None:
        while self.files.get() is not None:
            time.sleep(2.5)  # a slow line

    def finish(self) -> None:
        self.files.put(None)
        self.thread.join()
        print("all logs are uploaded", flush=True)


def main() -> None:
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    uploader = Uploader() if rank == 0 else None
    for step in range(1, 61):
        dist.all_reduce(torch.ones(3))
        time.sleep(0.1)
        if step % 10 == 0:
            print(f"rank {rank} step {step}", flush=True)
        if uploader and step > 52:
            uploader.files.put(f"log-{step}")
    dist.destroy_process_group()


main()
