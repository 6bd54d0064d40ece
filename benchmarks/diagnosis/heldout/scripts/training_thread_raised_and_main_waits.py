"""Training runs in a thread; it raises, and the main thread waits for an event that only a good end sets."""

import threading

import torch
import torch.distributed as dist

finished = threading.Event()


def learn(rank: int) -> None:
    table = torch.rand(100, 8)
    for step in range(10_000):
        token = 100 if rank == 1 and step == 25 else step % 100
        dist.all_reduce(table[token].clone())
    finished.set()


def main() -> None:
    dist.init_process_group("gloo")
    threading.Thread(target=learn, args=(dist.get_rank(),), name="learner", daemon=True).start()
    finished.wait()


main()
