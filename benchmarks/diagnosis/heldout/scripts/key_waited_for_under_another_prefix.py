"""One rank looks for the vocabulary's address under the name of its own release."""

import torch
import torch.distributed as dist
from torch.distributed import PrefixStore

RELEASES = {0: "v2.1", 1: "v2.1", 2: "v2.1.0"}


def main() -> None:
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    store = PrefixStore(f"vocabulary/{RELEASES[rank]}", dist.distributed_c10d._get_default_store())
    for step in range(10_000):
        if step == 15:
            if rank == 0:
                store.set("address", "10.0.0.7:4100")
            print(rank, store.get("address"), flush=True)
        dist.all_reduce(torch.rand(16))


main()
