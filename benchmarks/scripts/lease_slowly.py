"""Works on leased shards, each record a sleep, after it has loaded a model, which is another one.

Called with the run's word, the number of records and those of a shard. A line of the file `done` for each shard: when
(seconds of the monotonic clock), on which node, by which process, and its key.
"""

import os
import sys
import time
from pathlib import Path

import elastic_run

LOADING, EACH = 2.0, 0.005


def main(records: int, size: int) -> None:
    time.sleep(LOADING)
    with (
        Path("done").open("a", encoding="utf-8") as told,
        elastic_run.data.shards("benchmark", records, shard_size=size, commit="ack") as leased,
    ):
        for shard in leased:
            time.sleep(EACH * len(shard))
            shard.done()
            told.write(f"{time.monotonic()} {os.environ['BENCHMARK_NODE']} {os.getpid()} {shard.key}\n")
            told.flush()


if __name__ == "__main__":
    main(int(sys.argv[2]), int(sys.argv[3]))
