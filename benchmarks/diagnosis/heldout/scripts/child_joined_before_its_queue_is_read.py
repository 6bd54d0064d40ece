"""`join` on a child that has put more into its queue than the pipe holds."""

import multiprocessing as mp
import time

import numpy as np
import torch
import torch.distributed as dist


def embed(rows: int, output) -> None:
    output.put(np.random.default_rng(0).normal(size=(rows, 64)))


def embeddings(rows: int) -> np.ndarray:
    context = mp.get_context("fork")
    output = context.Queue()
    child = context.Process(target=embed, args=(rows, output))
    child.start()
    child.join()
    return output.get()


def main() -> None:
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    step = 0
    for epoch in range(1_000):
        rows = 2_000 if rank == 1 and epoch == 2 else 4
        table = torch.from_numpy(embeddings(rows)).mean(0)
        for _ in range(15):
            dist.all_reduce(table)
            table /= dist.get_world_size()
            time.sleep(0.08)
            step += 1
        if rank == 0:
            print(f"epoch {epoch}, {step} steps", flush=True)


main()
