"""Filters documents by a costly regular expression on one rank."""

import re
import time

import torch
import torch.distributed as dist

QUOTE = re.compile(r'^("([a-z]+ ?)*"|([a-z]+[ -]?)+)$')


def documents(rank):
    for i in range(26):
        if rank == 1 and i == 12:
            # long words without spaces are slow here
            for n in (22, 23, 24, 25, 26):
                yield "x" * n + "!", False
        yield f"plain document number {'abc'[i % 3]}", True


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    start = time.time()
    kept, step = 0, 0
    for text, counts in documents(rank):
        kept += bool(QUOTE.match(text))
        if not counts:
            continue
        n = torch.tensor([float(kept)])
        dist.all_reduce(n)
        step += 1
        time.sleep(0.2)
        if step % 5 == 0:
            print(f"rank {rank} step {step} kept {n.item():.0f} after {time.time() - start:.1f} s")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
