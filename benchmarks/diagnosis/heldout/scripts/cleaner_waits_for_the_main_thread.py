"""A cleaner thread waits for the main thread's end to remove scratch files; the main thread waits for the cleaner."""

import shutil
import tempfile
import threading
import time

import torch
import torch.distributed as dist


class Cleaner(threading.Thread):
    def __init__(self, folder: str) -> None:
        super().__init__()
        self.folder = folder
        self.done = threading.Event()

    def run(self) -> None:
        threading.main_thread().join()
        shutil.rmtree(self.folder, ignore_errors=True)
        self.done.set()


def main() -> None:
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    cleaner = Cleaner(tempfile.mkdtemp())
    cleaner.start()
    for step in range(60):
        dist.all_reduce(torch.rand(9))
        time.sleep(0.05)
    if rank == 2:
        cleaner.done.wait()
        print("scratch is empty", flush=True)
    dist.barrier()


main()
