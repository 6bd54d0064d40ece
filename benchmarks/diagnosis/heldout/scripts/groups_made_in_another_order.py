"""Each rank makes the same two groups, but one of them iterates over its layout backwards."""

import time

import torch
import torch.distributed as dist

Layout = dict[str, list[int]]


def make_groups(layout: Layout) -> dict[str, dist.ProcessGroup]:
    groups = {}
    for name, members in layout.items():
        groups[name] = dist.new_group(members)
        if dist.get_rank() in members:
            dist.barrier(group=groups[name])
    return groups


def main() -> None:
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    layout: Layout = {"tensor": [0, 1], "pipeline": [1, 2]}
    if rank == 1:
        layout = dict(reversed(layout.items()))
    for step in range(100_000):
        loss = torch.rand(1)
        dist.all_reduce(loss)
        time.sleep(0.1)
        if step == 35:
            groups = make_groups(layout)
            print(f"rank {rank}: groups {list(groups)}", flush=True)
        if step % 10 == 0:
            print(f"rank {rank} step {step} loss {loss.item():.3f}", flush=True)


main()
