"""A worker on a multiprocessing.Pipe dies; the parent holds the worker's end open too, and never sees the end."""

import multiprocessing as mp
import os
import time

import torch
import torch.distributed as dist


def augment(connection) -> None:
    for number, image in enumerate(iter(connection.recv, None)):
        if number == 18:
            os._exit(137)
        connection.send(image[::-1])


class Augmenter:
    def __init__(self) -> None:
        self.mine, self.theirs = mp.Pipe()
        mp.get_context("fork").Process(target=augment, args=(self.theirs,), daemon=True).start()

    def __call__(self, image: list) -> list:
        self.mine.send(image)
        return self.mine.recv()


def main() -> None:
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    augmenter = Augmenter() if rank == 2 else list
    for step in range(1_000_000):
        image = torch.tensor(augmenter([1.0, 2.0, float(step)]))
        dist.all_reduce(image)
        time.sleep(0.15)
        if rank == 1:
            print("step", step, image.tolist(), flush=True)


main()
