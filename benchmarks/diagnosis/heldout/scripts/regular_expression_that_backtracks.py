"""Cleans raw text with regular expressions before counting words."""

import re
import time

import torch
import torch.distributed as dist

TITLE = re.compile(r"^(([A-Za-z0-9]+)[ _-]?)+$")


def documents(rank):
    for i in range(500):
        if rank == 1 and i == 19:
            yield "Averylongidentifierwithnumbers0123456789andmuchmoretextthatfollows0123456789!"
        else:
            yield f"document {i} of the rank {rank}"


def clean(text):
    return text if TITLE.match(text) else text.lower()


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    counts = torch.zeros(1)
    for step, doc in enumerate(documents(rank)):
        n = torch.tensor([float(len(clean(doc).split()))])
        dist.all_reduce(n)
        counts += n
        time.sleep(0.2)
        if step % 5 == 0 and rank == 0:
            print(f"{step} documents, {counts.item():.0f} words")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
