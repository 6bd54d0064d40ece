"""A simulator's process says that it is ready with an event; one found no free port and left with code 0 before."""

import multiprocessing
import sys
import time
from datetime import timedelta

import torch
import torch.distributed as dist

ctx = multiprocessing.get_context("fork")


def simulator(scene: int, ports: list, ready, done) -> None:
    if not ports:
        sys.exit(0)
    ready.set()
    done.wait()


def start(scene: int, ports: list):
    ready, done = ctx.Event(), ctx.Event()
    process = ctx.Process(target=simulator, args=(scene, ports, ready, done), daemon=True)
    process.start()
    ready.wait()
    return process, done


def main() -> None:
    dist.init_process_group("gloo", timeout=timedelta(minutes=10))
    rank = dist.get_rank()
    for scene in range(1_000):
        process, done = start(scene, ports=[] if (rank, scene) == (1, 3) else [5000 + scene])
        for _ in range(9):
            dist.all_reduce(torch.rand(7))
            time.sleep(0.1)
        done.set()
        process.join()
        if rank == 0:
            print(f"scene {scene} done", flush=True)


if __name__ == "__main__":
    main()
