"""Takes the number of one record after the other, in a new order, and says how many seconds that took.

Called with `shards`, `list` or `torch`, the number of records, those of a shard, and the file for the answer. The
modules are imported before.
"""

# torch annotates itself only in part:
# pyright: basic

import json
import random
import sys
import time
from collections.abc import Callable
from pathlib import Path


def shards(records: int, shard: int) -> Callable[[], None]:
    import elastic_run

    leased = elastic_run.data.shards("benchmark", records, shard_size=shard, commit="ack")

    def loop() -> None:
        for one in leased:
            for _ in one.indices:
                pass
            one.done()

    return loop


def shuffled_list(records: int, _: int) -> Callable[[], None]:
    def loop() -> None:
        order = list(range(records))
        random.shuffle(order)
        for _ in order:
            pass

    return loop


def torchs(records: int, _: int) -> Callable[[], None]:
    from torch.utils.data import DistributedSampler

    size = range(records)
    sampler = DistributedSampler(size, 1, 0)  # pyright: ignore[reportArgumentType]  # it asks for the length

    def loop() -> None:
        for _ in sampler:
            pass

    return loop


def main(kind: str, records: int, shard: int, answer: Path) -> None:
    loop = {"shards": shards, "list": shuffled_list, "torch": torchs}[kind](records, shard)
    begun = time.perf_counter()
    loop()
    seconds = time.perf_counter() - begun
    part = answer.with_suffix(".part")
    part.write_text(json.dumps(seconds), encoding="utf-8")
    part.rename(answer)


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), Path(sys.argv[4]))
