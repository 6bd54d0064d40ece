"""Each rank takes the next shard from a counter in the store and works on it; they meet when all shards are done."""

import time

import torch
import torch.distributed as dist


def main() -> None:
    dist.init_process_group("gloo")
    store = dist.PrefixStore("shards", dist.distributed_c10d._get_default_store())
    done = 0
    while (shard := store.add("next", 1)) <= 13:
        time.sleep(14 if shard == 13 else 0.5)  # the last shard is a large one
        done += 1
    store.add("done", done)
    while store.add("done", 0) < 13:
        time.sleep(0.2)
    dist.all_reduce(torch.tensor([float(done)]))
    dist.destroy_process_group()


main()
