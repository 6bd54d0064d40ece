"""Text is cleaned with a regular expression that is exponential on one rank's document."""

import re
import time

import torch
import torch.distributed as dist

TRAILING = re.compile(r"^(\w+\s?)*$")


def clean(text: str) -> str:
    return text if TRAILING.match(text) else ""


def documents(rank: int):
    number = 0
    while True:
        number += 1
        if rank == 2 and number == 38:
            yield "averyveryverylongidentifierwithoutanyspaceinit" * 2 + "!"
        else:
            yield f"document {number} of rank {rank}"


def main() -> None:
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    for step, document in enumerate(documents(rank)):
        length = torch.tensor([float(len(clean(document)))])
        dist.all_reduce(length)
        time.sleep(0.1)
        if rank == 0 and step % 10 == 0:
            print(f"step {step}: {length.item():.0f} characters", flush=True)


main()
