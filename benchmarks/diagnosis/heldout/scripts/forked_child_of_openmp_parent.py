"""A process forked after the parent has used its OpenMP threads multiplies matrices itself."""

import multiprocessing
import time

import torch
import torch.distributed as dist


def whiten(results, size: int) -> None:
    data = torch.randn(size, size)
    for _ in range(3):
        data = torch.exp(-data.abs()) @ data
    results.put(float(data.sum()))


def main() -> None:
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.set_num_threads(2)
    context = multiprocessing.get_context("fork")
    for step in range(10_000):
        activations = torch.exp(torch.randn(400, 400)) @ torch.randn(400, 400)
        mean = activations.mean()
        dist.all_reduce(mean)
        time.sleep(0.1)
        if step == 30 and rank == 1:
            results = context.Queue()
            helper = context.Process(target=whiten, args=(results, 500), daemon=True)
            helper.start()
            print("statistics:", results.get(), flush=True)
            helper.join()
        if step % 10 == 0:
            print(rank, step, flush=True)


main()
