"""Distributed gradient boosting with XGBoost, which loses a worker and continues from its last tree.

    elastic-run --framework=xgboost --standalone --nproc-per-node=2 examples/digits_xgboost.py --checkpoint=/tmp/d.ubj

The tracker runs beside the workers. Each round shares out all rows anew, as XGBoost itself advises. With --fail a
worker kills itself once.
"""

import argparse
import os
import signal
from pathlib import Path

import numpy as np
import xgboost
from sklearn.datasets import load_digits
from xgboost import collective

import elastic_run


class Checkpoint(xgboost.callback.TrainingCallback):
    """Worker 0 saves the model after each tree; with `fail` worker 1 kills itself once it has that many."""

    def __init__(self, file: Path, fail: int) -> None:
        self.file, self.fail = file, fail

    def after_iteration(self, model: xgboost.Booster, epoch: int, evals_log: object) -> bool:
        if collective.get_rank() == 0:
            part = self.file.with_name(f"{os.getpid()}.part.ubj")
            model.save_model(part)
            part.rename(self.file)
        if collective.get_rank() == 1 and model.num_boosted_rounds() == self.fail:
            os.kill(os.getpid(), signal.SIGKILL)
        return False


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--trees", type=int, default=10)
    parser.add_argument("--checkpoint", type=Path, default=Path("digits.ubj"))
    parser.add_argument("--fail", action="store_true", help="worker 1 kills itself once, at half of the trees")
    options = parser.parse_args()
    fails = options.fail and elastic_run.context().restart_count == 0

    digits = load_digits()
    test = np.arange(len(digits.target)) % 5 == 0
    pixels, labels = digits.data[~test], digits.target[~test]
    with collective.CommunicatorContext(**elastic_run.xgboost.communicator_args()):
        rank, world = collective.get_rank(), collective.get_world_size()
        model = xgboost.Booster(model_file=options.checkpoint) if options.checkpoint.exists() else None
        done = model.num_boosted_rounds() if model else 0
        print(f"worker {rank} of {world} begins with {done} trees", flush=True)
        model = xgboost.train(
            {"objective": "multi:softmax", "num_class": 10, "max_depth": 4, "nthread": 1},
            xgboost.DMatrix(pixels[rank::world], labels[rank::world]),
            options.trees - done,
            xgb_model=model,
            callbacks=[Checkpoint(options.checkpoint, options.trees // 2 if fails else 0)],
        )
    if rank == 0:  # outside of the communicator, within which all workers take part in whatever is made of data
        right = float(np.mean(model.predict(xgboost.DMatrix(digits.data[test])) == digits.target[test]))
        print(f"accuracy on {int(test.sum())} unseen digits: {100 * right:.1f} %", flush=True)


if __name__ == "__main__":
    main()
