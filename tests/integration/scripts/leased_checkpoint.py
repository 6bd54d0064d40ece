"""Training on leased shards whose model is the count of how often each record was used, with `Checkpoint`.

In the nth round, rank 0 waits for the test after the nth step of `--hold`; the others wait for it in their collective.
"""

import argparse
import os
from collections.abc import Iterator

import puppet
import torch
import torch.distributed as dist

import elastic_run
from elastic_run.torch import Checkpoint


class Counts(torch.nn.Module):
    """How often each record was used."""

    def __init__(self, size: int) -> None:
        super().__init__()
        self.register_buffer("counts", torch.zeros(size, dtype=torch.int64))


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--size", type=int, required=True)
    parser.add_argument("--epochs", type=int, required=True)
    parser.add_argument("--checkpoint", required=True)
    parser.add_argument("--memory", type=int)
    parser.add_argument("--hold", type=int, nargs="*", default=[])
    options = parser.parse_args()

    test = puppet.connect()
    dist.init_process_group("gloo")
    model = Counts(options.size)
    data = elastic_run.data.shards("train", options.size, shard_size=7, epochs=options.epochs)
    path = options.checkpoint.replace("NODE", os.environ["PUPPET_NODE"])
    checkpoint = Checkpoint(path, every=3, memory=options.memory, model=model, data=data)
    checkpoint.restore()
    print(f"rank {dist.get_rank()} goes on after step {checkpoint.step}", flush=True)

    def batches() -> Iterator[tuple[elastic_run.data.Shard, list[int], int]]:
        for shard in data:
            for start in range(0, len(shard), 4):
                yield shard, list(shard.indices[start : start + 4]), start

    wait_after = dict(enumerate(options.hold, start=1)).get(elastic_run.context().round)
    own = batches()
    while True:
        batch = next(own, None)
        used = torch.bincount(torch.tensor(batch[1] if batch else [], dtype=torch.int64), minlength=options.size)
        shared = torch.cat([used, torch.tensor([batch is not None])])
        dist.all_reduce(shared)
        if not shared[-1]:
            break
        model.counts += shared[:-1]
        if batch:
            batch[0].progress(batch[2] + len(batch[1]))
        checkpoint.commit()
        if dist.get_rank() == 0 and checkpoint.step == wait_after:
            test.hold(f"step {checkpoint.step}")
    checkpoint.save()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
