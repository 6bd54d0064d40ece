"""Training on leased shards whose model is the count of how often each record was trained on: commit="checkpoint".

As with DDP all ranks step together: a rank without records takes part until nobody has any.
"""

import argparse
import time
from collections.abc import Iterator, Sequence

import torch
import torch.distributed as dist
from counting import STEP_SECONDS, load, may_finish, pause, save, times
from failpoint import VOTED, die, reached, taken, vote
from train import Test

import elastic_run

BEFORE_THE_VOTE = "before its vote, which another rank has given, rank 1"


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--size", type=int, required=True)
    parser.add_argument("--epochs", type=int, required=True)
    parser.add_argument("--shard-size", type=int, default=7)
    parser.add_argument("--batch-size", type=int, default=4)
    parser.add_argument("--save-every", type=int, default=3, help="steps")
    options = parser.parse_args()

    test = Test()
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    data = elastic_run.data.shards("train", options.size, shard_size=options.shard_size, epochs=options.epochs)
    counts = torch.zeros(options.size, dtype=torch.int64)
    step = 0
    if state := load():
        counts, step = state["counts"], state["step"]
        data.load_state_dict(state["data"])
    print(f"rank {rank} of {dist.get_world_size()} goes on after step {step}", flush=True)

    def batches() -> Iterator[tuple[elastic_run.data.Shard | None, Sequence[int], int]]:
        for shard in data:
            while shard.epoch == options.epochs - 1 and not may_finish():
                yield None, (), 0  # it waits, and the others with it
            for start in range(0, len(shard), options.batch_size):
                yield shard, shard.indices[start : start + options.batch_size], start

    own = batches()
    while True:
        test.obey()
        batch = next(own, None)
        shard, indices, start = batch or (None, (), 0)
        gradient = torch.bincount(torch.tensor(indices, dtype=torch.int64), minlength=options.size)
        shared = torch.cat([gradient, torch.tensor([batch is not None])])
        dist.all_reduce(shared)
        if not shared[-1]:
            break
        counts += shared[:-1]
        step += 1
        reached(f"between the optimizer's step and progress, rank {rank}")
        if shard and start + len(indices) == len(shard):
            shard.done()
        elif shard:
            shard.progress(start + len(indices))
        reached(f"between progress and state_dict, rank {rank}")
        if step % options.save_every == 0:
            if rank == 1 and taken(BEFORE_THE_VOTE):
                die_when_another_has_voted(step)
            position = data.state_dict(step)
            reached(f"between state_dict and checkpoint, rank {rank}")
            if rank == 0:
                save({"counts": counts, "step": step, "data": position}, step)
        pause()
    print(times(counts), flush=True)
    dist.destroy_process_group()


def die_when_another_has_voted(step: int) -> None:
    while not VOTED.exists() or VOTED.read_text() != vote(elastic_run.context().round, step):
        time.sleep(STEP_SECONDS)
    die()


if __name__ == "__main__":
    main()
