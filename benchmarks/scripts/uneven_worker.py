"""One of four workers of which the last is four times slower: each record is a sleep.

Called with `elastic-run`, `static` or `dlrover`, the folder of the run, the number of records, those of a shard, and
the address of DLRover's master. The workers wait for each other before the first record. The answer of each: when it
began and ended (seconds of the monotonic clock), and its records.
"""

# Runs in two interpreters, and neither has all of these modules:
# pyright: basic, reportMissingImports=false

import json
import os
import sys
import time
from collections.abc import Iterator
from pathlib import Path

SECONDS = 0.005
SLOWER = 4
RANK, WORLD = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])


def elastic_run(records: int, shard: int) -> Iterator[range]:
    import elastic_run

    leased = elastic_run.data.shards("benchmark", records, shard_size=shard, commit="ack")
    yield range(0)
    for one in leased:
        yield range(one.start, one.stop)
        one.done()


def static(records: int, shard: int) -> Iterator[range]:
    yield range(0)
    yield range(RANK * records // WORLD, (RANK + 1) * records // WORLD)


def dlrover(records: int, shard: int, address: str) -> Iterator[range]:
    os.environ |= {"NODE_ID": str(RANK), "NODE_TYPE": "worker"}
    from dlrover.proto import elastic_training_pb2
    from dlrover.python.elastic_agent.master_client import build_master_client

    client = build_master_client(address)
    name = "benchmark"
    client.report_dataset_shard_params(
        batch_size=shard,
        num_epochs=1,
        dataset_size=records,
        shuffle=True,
        num_minibatches_per_shard=1,
        dataset_name=name,
        task_type=elastic_training_pb2.TRAINING,
        storage_type="table",
    )
    yield range(0)
    while True:
        _, task = client.get_task(name)
        if task.shard.end <= task.shard.start:
            return
        yield range(task.shard.start, task.shard.end)
        client.report_task_result(name, task.task_id, "")


def main(kind: str, folder: Path, records: int, shard: int, address: str) -> None:
    work = (
        {"elastic-run": elastic_run, "static": static}[kind](records, shard)
        if kind != "dlrover"
        else dlrover(records, shard, address)
    )
    next(work)  # it is ready
    (folder / f"ready{RANK}").touch()
    while not all((folder / f"ready{rank}").exists() for rank in range(WORLD)):
        time.sleep(0.001)
    each = SECONDS * (SLOWER if RANK == WORLD - 1 else 1)
    done = 0
    begun = time.monotonic()
    for part in work:
        for _ in part:
            time.sleep(each)
        done += len(part)
    answer = {"begun": begun, "ended": time.monotonic(), "records": done}
    part = folder / f"part{RANK}"
    part.write_text(json.dumps(answer), encoding="utf-8")
    part.rename(folder / f"answer{RANK}")


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4]), sys.argv[5])
