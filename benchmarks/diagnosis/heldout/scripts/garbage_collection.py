"""One rank has many small objects, and collects garbage by hand between epochs."""

import gc
import time

import torch
import torch.distributed as dist


class Node:
    def __init__(self, parent: "Node | None") -> None:
        self.parent = parent
        self.children: list[Node] = []
        if parent:
            parent.children.append(self)


def grow_and_collect(seconds: float) -> int:
    end, freed = time.monotonic() + seconds, 0
    keep = [Node(None) for _ in range(200_000)]
    while time.monotonic() < end:
        root = Node(None)
        for _ in range(50_000):
            Node(root)
        del root
        freed += gc.collect()
    return freed + len(keep)


def main() -> None:
    gc.disable()
    dist.init_process_group("gloo")
    for epoch in range(4):
        for _ in range(15):
            dist.all_reduce(torch.ones(9))
            time.sleep(0.1)
        if epoch == 1 and dist.get_rank() == 2:
            print(f"{grow_and_collect(13)} objects", flush=True)
        print(f"rank {dist.get_rank()} epoch {epoch}", flush=True)
    dist.destroy_process_group()


main()
