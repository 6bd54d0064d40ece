"""Training whose model is the count of how often each record was trained on: at the end, `--epochs` of each.

Every step adds up the records of all ranks; rank 0 writes the counts and the sampler's position into one checkpoint,
but not in every step, so that what a fault undoes is trained on again. In each round rank 0 waits for the test after
`--hold` steps, and the other ranks for it in their collective.
"""

import argparse
import os
from pathlib import Path

import puppet
import torch
import torch.distributed as dist
from torch.utils.data import DataLoader, TensorDataset

import elastic_run
from elastic_run.torch import ElasticBatchSampler


def save(path: Path, counts: torch.Tensor, sampler: ElasticBatchSampler) -> None:
    if dist.get_rank() == 0:
        part = path.with_suffix(f".{os.getpid()}.part")
        torch.save({"counts": counts, "sampler": sampler.state_dict()}, part)
        part.rename(path)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--size", type=int, required=True)
    parser.add_argument("--batch-size", type=int, nargs="+", required=True, help="of all ranks, or of each")
    parser.add_argument("--epochs", type=int, default=1)
    parser.add_argument("--accumulate", type=int, default=1)
    parser.add_argument("--fixed-global-batch", type=int)
    parser.add_argument("--loader-workers", type=int, default=0)
    parser.add_argument("--save-every", type=int, default=3, help="steps")
    parser.add_argument("--hold", type=int, required=True, help="steps in this round")
    parser.add_argument("--checkpoint", type=Path, required=True)
    options = parser.parse_args()

    dist.init_process_group("gloo")
    world = elastic_run.context()
    assert (world.rank, world.world_size) == (dist.get_rank(), dist.get_world_size())
    test = puppet.connect()
    sampler = ElasticBatchSampler(
        options.size,
        options.batch_size[world.rank % len(options.batch_size)],
        epochs=options.epochs,
        accumulate=options.accumulate,
        fixed_global_batch=options.fixed_global_batch,
    )
    loader = DataLoader(
        TensorDataset(torch.arange(options.size)),
        batch_sampler=sampler,
        num_workers=options.loader_workers,
        persistent_workers=options.loader_workers > 0,
    )
    counts = torch.zeros(options.size, dtype=torch.int64)
    if options.checkpoint.exists():
        state = torch.load(options.checkpoint, weights_only=True)
        counts = state["counts"]
        sampler.load_state_dict(state["sampler"])
    print(
        f"rank {world.rank} of {world.world_size} begins in epoch {sampler.epoch} after step {sampler.step}", flush=True
    )
    began = sampler.step
    for _ in range(sampler.epoch, options.epochs):
        gradient = torch.zeros_like(counts)
        drawn = 0
        for (records,) in loader:
            gradient += torch.bincount(records, minlength=options.size) * (sampler.weights[drawn] > 0)
            drawn += 1
            if drawn < sampler.accumulate:
                continue
            dist.all_reduce(gradient)
            counts += gradient
            sampler.commit()
            gradient.zero_()
            drawn = 0
            if sampler.step % options.save_every == 0:
                save(options.checkpoint, counts, sampler)
            if world.rank == 0 and sampler.step == began + options.hold:
                test.hold("trains")
    save(options.checkpoint, counts, sampler)
    times = sorted(set(counts.tolist()))
    print(f"rank {world.rank} ends after step {sampler.step}: each record was trained on {times} times", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
