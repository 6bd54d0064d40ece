"""A factorization machine whose whole model is on parameter servers: one pass over clicks, and then its AUC.

Writes a line for each shard that it has done into `FOLDER/done`. When every record counts, one worker writes
`FOLDER/result.json`: the AUC on the records that follow those of the training, and how many records the table counted.
"""

import argparse
import json
import os
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from click_records import NUMBERS, ClickRecords, Clicks, area_under_curve

from elastic_run import data, servers

FACTORS, RATE, PART = 8, 0.05, 4096
LAST_SECONDS = 120.0
"""For the others' last shards."""


class Machine:
    """The model: a weight and factors of each id, a weight of each number, and a bias."""

    def __init__(self, seed: int) -> None:
        self._ids = servers.Table("ids", 1 + FACTORS, servers.Adagrad(RATE), servers.Normal(std=0.01), seed=seed)
        self._dense = servers.Table("dense", 1, servers.Adagrad(RATE), servers.Zeros())
        self._counts = servers.Table("counts", 1, servers.SGD(1.0), servers.Zeros())
        self._weights = np.arange(NUMBERS + 1)

    def fetch_ahead(self, clicks: Clicks) -> None:
        """What the next step needs."""
        self._ids.prefetch(clicks.ids)
        self._dense.prefetch(self._weights)

    def compute_step(self, clicks: Clicks) -> None:
        """Gradients of the sum of the logistic losses."""
        rows, dense = self._ids.pull(clicks.ids), self._dense.pull(self._weights)[:, 0]
        weights, factors = rows[..., 0], rows[..., 1:]
        sums = factors.sum(axis=1, keepdims=True)
        products = ((sums[:, 0] ** 2).sum(axis=1) - (factors**2).sum(axis=(1, 2))) / 2
        logits = clicks.numbers @ dense[:-1] + dense[-1] + weights.sum(axis=1) + products
        errors = 1 / (1 + np.exp(-logits)) - clicks.clicks
        gradients = np.empty_like(rows)
        gradients[..., 0] = errors[:, None]
        gradients[..., 1:] = errors[:, None, None] * (sums - factors)
        self._ids.push(clicks.ids, gradients)
        self._dense.push(self._weights, np.append(errors @ clicks.numbers, errors.sum())[:, None])
        self._counts.push([0], [[-float(len(errors))]])

    def count_records(self) -> int:
        """That the model was trained on."""
        return int(self._counts.rows([0])[0, 0])

    def score(self, clicks: Clicks) -> np.ndarray:
        """Logits."""
        rows, dense = self._ids.rows(clicks.ids), self._dense.rows(self._weights)[:, 0]
        factors = rows[..., 1:]
        products = ((factors.sum(axis=1) ** 2).sum(axis=1) - (factors**2).sum(axis=(1, 2))) / 2
        return clicks.numbers @ dense[:-1] + dense[-1] + rows[..., 0].sum(axis=1) + products


def batches(records: ClickRecords, numbers: np.ndarray, size: int) -> Iterator[Clicks]:
    for begin in range(0, len(numbers), size):
        yield records.make(numbers[begin : begin + size])


def evaluate(model: Machine, records: ClickRecords, first: int, count: int) -> float:
    parts = list(batches(records, np.arange(first, first + count), PART))
    scores = np.concatenate([model.score(each) for each in parts])
    return area_under_curve(scores, np.concatenate([each.clicks for each in parts]))


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=Path)
    parser.add_argument("--records", type=int, required=True)
    parser.add_argument("--test", type=int, required=True)
    parser.add_argument("--batch", type=int, required=True)
    parser.add_argument("--shard", type=int, required=True)
    parser.add_argument("--seed", type=int, required=True)
    parser.add_argument("--ahead", action="store_true", help="fetch the rows of the next batch during each step")
    options = parser.parse_args()
    records, model = ClickRecords(options.seed), Machine(options.seed)
    shards = data.shards("clicks", options.records, shard_size=options.shard, commit="ack", seed=options.seed)
    with (options.folder / "done").open("a", buffering=1) as done:
        for shard in shards:
            coming = batches(records, np.array(shard.indices), options.batch)
            batch, named = next(coming, None), 0
            while batch is not None:
                following = next(coming, None)
                if options.ahead and following is not None:
                    model.fetch_ahead(following)
                model.compute_step(batch)
                named += len(batch.clicks)
                shard.progress(named)
                batch = following
            shard.done()
            done.write(f"{os.environ.get('BENCHMARK_NODE', '0')} {named}\n")
    try:
        (options.folder / "evaluates").mkdir()
    except FileExistsError:
        return
    until = time.monotonic() + LAST_SECONDS
    while (counted := model.count_records()) < options.records and time.monotonic() < until:
        time.sleep(0.1)  # a table tells nobody of its changes
    auc = evaluate(model, records, options.records, options.test)
    (new := options.folder / "result.part").write_text(json.dumps({"auc": auc, "counted": counted}))
    new.rename(options.folder / "result.json")


if __name__ == "__main__":
    main()
