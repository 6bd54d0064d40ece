"""Gradient boosting on leased or fixed parts of a data set, with a checkpoint after each tree.

Each feature has few values, so that the cuts, and with them the trees, do not depend on who has which rows.
Worker 0 waits for the test once the model has so many trees as one of `--hold`, and the others wait for it in their
collective.
"""

import argparse
import os
from pathlib import Path

import numpy as np
import puppet
import xgboost
from xgboost import collective

import elastic_run

ROWS, BLOCK = 1200, 100


def rows() -> tuple[np.ndarray, np.ndarray]:
    inputs = np.random.default_rng(0).integers(0, 16, (ROWS, 4)).astype(float)
    return inputs, inputs @ np.array([1.0, -2.0, 3.0, 0.5])


class Checkpoints(xgboost.callback.TrainingCallback):
    def __init__(self, file: Path, hold: list[int], test: puppet.Strings) -> None:
        self.file, self.hold, self.test = file, hold, test

    def after_iteration(self, model: xgboost.Booster, epoch: int, evals_log: object) -> bool:
        if collective.get_rank() == 0:
            new = self.file.with_name(f"{os.getpid()}.part.ubj")
            model.save_model(new)
            new.rename(self.file)
            if model.num_boosted_rounds() in self.hold:
                self.test.hold(f"{model.num_boosted_rounds()} trees")
        return False


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--trees", type=int, default=12)
    parser.add_argument("--hold", type=int, nargs="*", default=[])
    parser.add_argument("--leased", action="store_true")
    parser.add_argument("--checkpoint", type=Path, required=True)
    options = parser.parse_args()
    test = puppet.connect()
    rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    inputs, targets = rows()
    if options.leased:
        mine: list[int] = []
        for shard in elastic_run.data.shards("rows", ROWS, shard_size=BLOCK):  # each round shares all rows out
            mine += shard.indices
            shard.done()
    else:
        mine = list(range(rank, ROWS, world))
    with collective.CommunicatorContext(**elastic_run.xgboost.communicator_args()):
        assert (collective.get_rank(), collective.get_world_size()) == (rank, world)
        data = xgboost.DMatrix(inputs[mine], targets[mine])
        model = xgboost.Booster(model_file=options.checkpoint) if options.checkpoint.exists() else None
        done = model.num_boosted_rounds() if model else 0
        total = int(collective.allreduce(np.array([len(mine)]), collective.Op.SUM)[0])
        assert total == ROWS, f"{total} rows of {ROWS}"
        print(f"worker {rank} of {world} has {len(mine)} rows and begins with {done} trees", flush=True)
        xgboost.train(
            {"tree_method": "hist", "max_depth": 4, "eta": 0.5, "nthread": 1},
            data,
            options.trees - done,
            xgb_model=model,
            callbacks=[Checkpoints(options.checkpoint, options.hold, test)],
        )
    print(f"worker {rank} ends", flush=True)


if __name__ == "__main__":
    main()
