"""A rank starts the child that appends to its index, and joins it, while it keeps the index's lock."""

import multiprocessing

import torch
import torch.distributed as dist

fork = multiprocessing.get_context("fork")


class Index:
    def __init__(self) -> None:
        self.lock, self.size = fork.Lock(), fork.Value("i", 0)

    def append(self, count: int) -> None:
        with self.lock:
            self.size.value += count

    def rebuild(self) -> None:
        with self.lock:
            self.size.value = 0
            child = fork.Process(target=self.append, args=(100,))
            child.start()
            child.join()


def main() -> None:
    dist.init_process_group("gloo")
    index = Index()
    for step in range(10_000):
        index.append(1)
        if dist.get_rank() == 0 and step == 30:
            index.rebuild()
        dist.all_reduce(torch.rand(16))


main()
