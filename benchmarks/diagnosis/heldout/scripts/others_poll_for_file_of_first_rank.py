"""Rank 0 prepares the data set; the others look for the finished file."""

import collections
import os
import tempfile
import time

import torch
import torch.distributed as dist


def prepare(path, seconds=13):
    counts = collections.Counter()
    end = time.time() + seconds
    i = 0
    while time.time() < end:
        for word in f"the {i} quick {i % 7} brown {i % 11} fox".split():
            counts[word[:3]] += 1
        i += 1
    torch.save(dict(counts), path + ".part")
    os.rename(path + ".part", path)


def wait_for(path):
    while not os.path.exists(path):
        time.sleep(1)


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    box = [os.path.join(tempfile.mkdtemp(), "counts.pt") if rank == 0 else None]
    dist.broadcast_object_list(box)
    for step in range(15):
        x = torch.rand(5)
        dist.all_reduce(x)
        time.sleep(0.2)
    print(f"rank {rank}: warm-up finished")
    if rank == 0:
        prepare(box[0])
    else:
        wait_for(box[0])
    counts = torch.load(box[0])
    print(f"rank {rank}: {len(counts)} words")
    for step in range(15):
        x = torch.tensor([float(len(counts))])
        dist.all_reduce(x)
        time.sleep(0.2)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
