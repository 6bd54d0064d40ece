"""Each rank wants the cache's file lock; rank 1 has it first and builds the cache, the others then find it."""

import fcntl
import os
import pickle
import tempfile
import time

import torch
import torch.distributed as dist


def build(seconds: float) -> dict[int, int]:
    end, primes, number = time.monotonic() + seconds, {}, 2
    while time.monotonic() < end:
        if all(number % divisor for divisor in range(2, int(number**0.5) + 1)):
            primes[number % 10_000] = number
        number += 1
    return primes


def cached(folder: str) -> dict[int, int]:
    path = os.path.join(folder, "primes.pickle")
    with open(path + ".lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not os.path.exists(path):
            with open(path, "wb") as file:
                pickle.dump(build(15), file)
        with open(path, "rb") as file:
            return pickle.load(file)


def main() -> None:
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    box = [tempfile.mkdtemp(prefix="cache-")]
    dist.broadcast_object_list(box, src=0)
    for step in range(60):
        dist.all_reduce(torch.ones(3))
        time.sleep(0.1)
        if step == 30:
            if rank != 1:
                time.sleep(0.5)
            print(f"rank {rank}: {len(cached(box[0]))} entries", flush=True)
        if step % 15 == 0:
            print(f"rank {rank} step {step}", flush=True)
    dist.destroy_process_group()


main()
