"""Two services are singletons by one metaclass with a lock; the constructor of one asks for the other."""

import threading
import time

import torch
import torch.distributed as dist


class Singleton(type):
    _made: dict = {}
    _lock = threading.Lock()

    def __call__(cls, *args):
        if cls not in Singleton._made:
            with Singleton._lock:
                if cls not in Singleton._made:
                    Singleton._made[cls] = super().__call__(*args)
        return Singleton._made[cls]


class Settings(metaclass=Singleton):
    folder = "/tmp"


class Tracker(metaclass=Singleton):
    def __init__(self) -> None:
        self.folder = Settings().folder


def main() -> None:
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    for step in range(100_000):
        loss = torch.rand(1)
        dist.all_reduce(loss)
        time.sleep(0.1)
        if rank == 0 and step == 40:
            print("writing to", Tracker().folder, flush=True)


main()
