"""The call-back of a pool's result asks the pool for more, in the thread that would receive the answer."""

import multiprocessing as mp
import time

import torch
import torch.distributed as dist


def count(words: int) -> int:
    return words * 2


def main() -> None:
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    pool = mp.get_context("spawn").Pool(2) if rank == 0 else None

    def refine(total: int) -> None:
        totals.extend(pool.map(count, range(total)))

    totals: list = []
    for step in range(100_000):
        dist.all_reduce(torch.rand(3))
        time.sleep(0.1)
        if rank == 0 and step == 40:
            first = pool.apply_async(count, (4,), callback=refine)
            first.wait()
            second = pool.apply_async(count, (5,))
            print(second.get(), totals, flush=True)


if __name__ == "__main__":
    main()
