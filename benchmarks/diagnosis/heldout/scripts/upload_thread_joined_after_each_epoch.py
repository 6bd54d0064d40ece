"""Uploads the checkpoint of each epoch in a thread, and waits for it at the next one."""

import threading
import time

import torch
import torch.distributed as dist


class Uploader:
    def __init__(self):
        self.thread = None

    def _upload(self, data, chunks):
        for i in range(chunks):
            time.sleep(0.5)  # as slow as the storage takes it
        self.size = len(data)

    def submit(self, data, chunks):
        self.wait()
        self.thread = threading.Thread(target=self._upload, args=(data, chunks))
        self.thread.start()

    def wait(self):
        if self.thread is not None:
            self.thread.join()


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    up = Uploader()
    w = torch.zeros(1000)
    for epoch in range(3):
        for _ in range(10):
            g = torch.randn(1000)
            dist.all_reduce(g)
            w += 0.01 * g
            time.sleep(0.15)
        if rank == 1:
            up.submit(w.numpy().tobytes(), chunks=20)
        print(f"rank {rank} epoch {epoch}")
    up.wait()
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
