"""Children wait for a multiprocessing Event so that all start at once; the rank joins them before it sets it."""

import multiprocessing as mp
import time

import torch
import torch.distributed as dist


def benchmark(start, seconds: float) -> None:
    start.wait()
    time.sleep(seconds)


def main() -> None:
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    for step in range(100_000):
        dist.all_reduce(torch.rand(3))
        time.sleep(0.1)
        if rank == 1 and step == 40:
            context = mp.get_context("fork")
            start = context.Event()
            children = [context.Process(target=benchmark, args=(start, 1.0)) for _ in range(3)]
            for child in children:
                child.start()
            for child in children:
                child.join()
            start.set()


if __name__ == "__main__":
    main()
