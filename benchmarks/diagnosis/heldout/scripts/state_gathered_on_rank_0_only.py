"""`if rank == 0: save(...)`, and the saving is a collective (sharded optimizer state)."""

import time
from datetime import timedelta

import torch
import torch.distributed as dist


class ShardedState:
    def __init__(self) -> None:
        self.shard = torch.randn(25)

    def update(self) -> None:
        total = self.shard.clone()
        dist.all_reduce(total)
        self.shard = total / total.norm()

    def full(self) -> torch.Tensor:
        shards = [torch.empty_like(self.shard) for _ in range(dist.get_world_size())]
        dist.all_gather(shards, self.shard)
        return torch.cat(shards)


def save(state: ShardedState) -> None:
    print(f"saving {state.full().numel()} numbers", flush=True)


def main() -> None:
    dist.init_process_group("gloo", timeout=timedelta(minutes=10))
    state = ShardedState()
    for step in range(1, 100_000):
        state.update()
        time.sleep(0.1)
        if step % 10 == 0:
            print(f"rank {dist.get_rank()} step {step}", flush=True)
        if step == 40 and dist.get_rank() == 0:
            save(state)
        if step % 40 == 0:
            dist.monitored_barrier()


main()
