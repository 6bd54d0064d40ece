"""Loops over the batches of one rank of eight, and says how many seconds the loop took: no model, no loader.

Called with `elastic` or `torch`, the batch size, the number of steps, and the file for the answer: the seconds until
the first batch, in which torch's sampler shuffles the whole dataset, and those of all others.
"""

# torch annotates itself only in part:
# pyright: basic

import json
import os
import sys
import time
from pathlib import Path

WORLD = 8

os.environ |= {"RANK": "0", "WORLD_SIZE": str(WORLD), "LOCAL_RANK": "0", "LOCAL_WORLD_SIZE": str(WORLD)}

from torch.utils.data import BatchSampler, DistributedSampler  # noqa: E402

from elastic_run.torch import ElasticBatchSampler  # noqa: E402


def elastic(size: int, batch: int) -> tuple[float, float]:
    """Each batch is drawn, and its step committed."""
    sampler = ElasticBatchSampler(size, batch)
    begun = time.perf_counter()
    batches = iter(sampler)
    next(batches)
    sampler.commit()
    first = time.perf_counter()
    for _ in batches:
        sampler.commit()
    return first - begun, time.perf_counter() - first


def torchs(size: int, batch: int) -> tuple[float, float]:
    """Each batch is drawn."""
    records = range(size)
    sampler = DistributedSampler(records, WORLD, 0)  # pyright: ignore[reportArgumentType]  # it asks for the length
    begun = time.perf_counter()
    batches = iter(BatchSampler(sampler, batch, drop_last=False))
    next(batches)
    first = time.perf_counter()
    for _ in batches:
        pass
    return first - begun, time.perf_counter() - first


def main(kind: str, batch: int, steps: int, answer: Path) -> None:
    seconds = {"elastic": elastic, "torch": torchs}[kind](WORLD * batch * steps, batch)
    part = answer.with_suffix(".part")
    part.write_text(json.dumps(seconds), encoding="utf-8")
    part.rename(answer)


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), Path(sys.argv[4]))
