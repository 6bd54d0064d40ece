"""Each rank throws its own dice whether to exchange negatives this step; the seeds are no longer the same."""

import random
import time

import torch
import torch.distributed as dist


def main() -> None:
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    random.seed(17)
    for step in range(100_000):
        features = torch.rand(4, 8)
        if rank == 2 and step == 40:
            features = features.roll(int(random.random() * 8), 1)  # an augmentation
        if random.random() < 0.1:
            everyone = [torch.zeros(4, 8) for _ in range(world)]
            dist.all_gather(everyone, features)
            features = torch.cat(everyone)
        loss = features.mean().reshape(1)
        dist.reduce(loss, dst=0)
        dist.all_reduce(torch.rand(16))
        time.sleep(0.1)


main()
