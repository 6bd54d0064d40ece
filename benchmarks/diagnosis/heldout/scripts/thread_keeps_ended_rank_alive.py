"""Trains while a thread that is no daemon watches the host."""

import threading
import time

import torch
import torch.distributed as dist


class Watcher(threading.Thread):
    def __init__(self):
        super().__init__(name="host-watcher")
        self.stop = threading.Event()
        self.samples = []

    def run(self):
        while not self.stop.wait(0.5):
            self.samples.append(time.process_time())


def train(rank, steps):
    w = torch.zeros(30)
    for step in range(steps):
        g = torch.rand(30)
        dist.all_reduce(g)
        w += g
        time.sleep(0.2)
        if step % 8 == 0:
            print(f"rank {rank} step {step}")
        if rank == 1 and step == 21:
            return None  # the loss has become infinite
    return w


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    watcher = Watcher()
    watcher.start()
    result = train(rank, 150)
    if result is None:
        print(f"rank {rank}: no result")
        return
    watcher.stop.set()
    watcher.join()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
