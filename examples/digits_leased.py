"""Digits on leased shards: a quick rank gets more of them, and each record is in the model once in every epoch.

    elastic-run --nnodes=1:4 --nproc-per-node=2 examples/digits_leased.py --epochs 20 --checkpoint /tmp/leased.pt

Kill workers, take nodes away, add some: `Checkpoint` keeps the model and the position of the data together. With
--fail a worker kills itself once.
"""

import argparse
import os
import signal
from collections.abc import Iterator

import torch
import torch.distributed as dist
from sklearn.datasets import load_digits
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import elastic_run
from elastic_run.torch import Checkpoint

Batch = tuple[elastic_run.data.Shard, list[int], int]


def batches(data: elastic_run.data.Shards, size: int) -> Iterator[Batch]:
    """Of each shard: the records of a batch, and how many of the shard's are in the model after it."""
    for shard in data:
        for start in range(0, len(shard), size):
            records = list(shard.indices[start : start + size])
            yield shard, records, start + len(records)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--epochs", type=int, default=20)
    parser.add_argument("--batch-size", type=int, default=32, help="records per rank and step")
    parser.add_argument("--checkpoint", default="leased.pt")
    parser.add_argument("--save-every", type=int, default=5, help="steps between two checkpoints")
    parser.add_argument("--fail", action="store_true", help="rank 1 kills itself once, after 30 steps")
    options = parser.parse_args()

    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    fails = options.fail and rank == 1 and os.environ["TORCHELASTIC_RESTART_COUNT"] == "0"
    digits = load_digits()
    pixels = torch.tensor(digits.data, dtype=torch.float32) / 16.0
    labels = torch.tensor(digits.target, dtype=torch.int64)
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 10))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)

    data = elastic_run.data.shards("digits", len(labels), shard_size=64, epochs=options.epochs)
    checkpoint = Checkpoint(options.checkpoint, every=options.save_every, model=model, optimizer=optimizer, data=data)
    checkpoint.restore()
    if rank == 0:
        print(f"begins at step {checkpoint.step}, with {world} ranks", flush=True)

    ddp = DistributedDataParallel(model)
    own = batches(data, options.batch_size)
    while True:
        batch = next(own, None)
        records = batch[1] if batch else []
        total = torch.tensor(float(len(records)))
        dist.all_reduce(total)  # of all ranks: they get different numbers of records, and stop at the same step
        if not total:
            break
        chosen = torch.tensor(records or [0])
        loss = nn.functional.cross_entropy(ddp(pixels[chosen]), labels[chosen]) * len(records)
        optimizer.zero_grad()
        (loss * world / total).backward()
        optimizer.step()
        if batch:
            batch[0].progress(batch[2])
        checkpoint.commit()
        if fails and checkpoint.step == 30:
            os.kill(os.getpid(), signal.SIGKILL)
    checkpoint.save()

    with torch.no_grad():
        accuracy = (model(pixels).argmax(dim=1) == labels).float().mean().item()
    if rank == 0:
        print(f"after {checkpoint.step} steps: {100 * accuracy:.1f} % of the digits", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
