"""Every rank groups its features by k-means in plain Python before the next phase."""

import random
import time

import torch
import torch.distributed as dist


def nearest(p, centers):
    return min(range(len(centers)), key=lambda c: (p[0] - centers[c][0]) ** 2 + (p[1] - centers[c][1]) ** 2)


def k_means(points, k, seconds):
    centers = points[:k]
    end = time.time() + seconds
    rounds = 0
    while time.time() < end:
        groups = [[] for _ in range(k)]
        for p in points:
            groups[nearest(p, centers)].append(p)
        centers = [
            (sum(p[0] for p in g) / len(g), sum(p[1] for p in g) / len(g)) if g else random.choice(points)
            for g in groups
        ]
        rounds += 1
    return centers, rounds


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    rng = random.Random(rank)
    for step in range(30):
        x = torch.rand(16)
        dist.all_reduce(x)
        time.sleep(0.15)
        if step == 14:
            points = [(rng.random(), rng.random()) for _ in range(4000)]
            centers, rounds = k_means(points, 12, seconds=12)
            print(f"rank {rank}: {rounds} rounds, first center {centers[0]}")
            t = torch.tensor(centers)
            dist.all_reduce(t)
    print(f"rank {rank} finished")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
