"""Rank 0 tokenises a corpus with a pool of processes; it waits for their results, the others for it."""

import time
from concurrent.futures import ProcessPoolExecutor

import torch
import torch.distributed as dist


def tokenise(document: int) -> int:
    end, text = time.monotonic() + 1.5, f"document {document} " * 50
    while time.monotonic() < end:
        for _ in range(100):
            tokens = [word.encode() for word in text.split()]
        time.sleep(0.001)
    return len(tokens)


def main() -> None:
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    for epoch in range(4):
        if rank == 0 and epoch == 2:
            with ProcessPoolExecutor(max_workers=2) as pool:
                print("tokens:", sum(pool.map(tokenise, range(18))), flush=True)
        dist.barrier()
        for _ in range(15):
            dist.all_reduce(torch.ones(100))
            time.sleep(0.1)
        print(f"rank {rank} epoch {epoch}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
