"""Training in lockstep whose model is the count of how often each record was trained on (`ElasticBatchSampler`)."""

import argparse

import torch
import torch.distributed as dist
from counting import load, may_finish, pause, save, times, waited
from failpoint import reached
from torch.utils.data import DataLoader, TensorDataset
from train import Test

from elastic_run.torch import ElasticBatchSampler


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--size", type=int, required=True)
    parser.add_argument("--epochs", type=int, required=True)
    parser.add_argument("--batch-size", type=int, default=4)
    parser.add_argument("--accumulate", type=int, default=1)
    parser.add_argument("--fixed-global-batch", type=int)
    parser.add_argument("--loader-workers", type=int, default=0)
    parser.add_argument("--save-every", type=int, default=3, help="steps")
    options = parser.parse_args()

    test = Test()
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    sampler = ElasticBatchSampler(
        options.size,
        options.batch_size,
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
    if state := load():
        counts = state["counts"]
        sampler.load_state_dict(state["data"])
    print(f"rank {rank} of {dist.get_world_size()} goes on in epoch {sampler.epoch}", flush=True)
    for epoch in range(sampler.epoch, options.epochs):
        while epoch == options.epochs - 1 and not all_may_finish():
            test.obey()
            if rank == 0:
                waited()
                save({"counts": counts, "data": sampler.state_dict()}, sampler.step)
            pause()
        gradient = torch.zeros_like(counts)
        drawn = 0
        for (records,) in loader:
            gradient += torch.bincount(records, minlength=options.size) * (sampler.weights[drawn] > 0)
            drawn += 1
            if drawn < sampler.accumulate:
                continue
            test.obey()
            dist.all_reduce(gradient)
            counts += gradient
            reached(f"between the optimizer's step and commit, rank {rank}")
            sampler.commit()
            reached(f"between commit and checkpoint, rank {rank}")
            gradient.zero_()
            drawn = 0
            if sampler.step % options.save_every == 0:
                position = sampler.state_dict()
                if rank == 0:
                    save({"counts": counts, "data": position}, sampler.step)
            pause()
    print(times(counts), flush=True)
    dist.destroy_process_group()


def all_may_finish() -> bool:
    """Whether rank 0 says so."""
    go = torch.tensor([may_finish()], dtype=torch.int64)
    dist.broadcast(go, 0)
    return bool(go.item())


if __name__ == "__main__":
    main()
