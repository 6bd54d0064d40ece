"""Rank 0 counts words into a vocabulary file; the others look for it every second."""

import os
import random
import tempfile
import time
from collections import Counter

import torch
import torch.distributed as dist


def build_vocabulary(path: str, seconds: float) -> None:
    words: Counter[str] = Counter()
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        text = " ".join("".join(random.choices("abcd", k=4)) for _ in range(1000))
        words.update(text.split())
    with open(path + ".part", "w") as file:
        file.writelines(f"{word} {count}\n" for word, count in words.most_common())
    os.rename(path + ".part", path)


def train(name: str) -> None:
    for _ in range(30):
        dist.all_reduce(torch.ones(16))
        time.sleep(0.1)
    print(f"rank {dist.get_rank()} {name} done", flush=True)


def main() -> None:
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    box = [os.path.join(tempfile.mkdtemp(prefix="vocabulary-"), "vocab.txt")]
    dist.broadcast_object_list(box, src=0)
    train("warm-up")
    if rank == 0:
        build_vocabulary(box[0], 14)
    else:
        while not os.path.exists(box[0]):
            time.sleep(1)
    train("epoch")
    dist.destroy_process_group()


main()
