"""A metric registry and a checkpoint manager that know of each other."""

import threading
import time

import torch
import torch.distributed as dist


class Registry:
    def __init__(self):
        self.lock = threading.Lock()
        self.values = {}

    def dump(self, manager):
        with self.lock:
            time.sleep(0.3)
            with manager.lock:
                manager.last = dict(self.values)


class Manager:
    def __init__(self):
        self.lock = threading.Lock()
        self.last = None

    def save(self, registry, step):
        with self.lock:
            time.sleep(0.3)
            with registry.lock:
                registry.values["saved"] = step


def background(registry, manager):
    registry.dump(manager)
    print("background dump done")


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    registry, manager = Registry(), Manager()
    x = torch.ones(10)
    for step in range(300):
        y = x * (rank + step)
        dist.all_reduce(y)
        time.sleep(0.2)
        if step % 5 == 0:
            print(f"rank {rank} step {step} sum {y.sum():.0f}")
        if step % 12 == 11:
            t = threading.Thread(target=background, args=(registry, manager), daemon=True)
            if rank == 1:
                t.start()
                manager.save(registry, step)
            else:
                manager.save(registry, step)
                t.start()
            t.join()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
