"""What a job of ten million shards costs its master: bytes in memory, bytes to keep, and the time to read them again.

Called with `elastic-run` or `dlrover`, the number of restores, and the file for the answer. Four workers have eight
shards each; it is measured at the beginning and after DONE shards have been done in order. Everything is in this one
process, without a server.
"""

# Runs in two interpreters, and neither has all of these modules:
# pyright: basic, reportMissingImports=false

import gc
import json
import os
import sys
import time
import tracemalloc
from pathlib import Path

SHARDS = 10_000_000
SHARD = 100
WORKERS = 4
EACH = 8
DONE = 100_000


def held() -> int:
    """Bytes of memory since the measuring began, without what only waits to be collected."""
    gc.collect()
    return tracemalloc.get_traced_memory()[0]


def elastic_run(restores: int) -> dict[str, object]:
    from elastic_run.master.data.ledger import Dataset, Ledger, Mark, Request, fresh
    from elastic_run.master.data.stored_ledger import read, written

    dataset = Dataset("benchmark", SHARDS * SHARD, SHARD, SHARDS, tracking="ack")
    tracemalloc.start()
    ledger = Ledger(fresh(dataset), 0.0)
    has: dict[int, tuple[int, ...]] = dict.fromkeys(range(WORKERS), ())

    def turn(sequence: int) -> None:
        """Each worker marks what it has, and leases as many."""
        for rank in range(WORKERS):
            marks = tuple(map(Mark, has[rank]))
            request = Request("exchange", dataset.name, 0, rank, WORKERS, sequence=sequence, marks=marks, wants=EACH)
            answer = ledger.answer(request, 0.0)
            assert answer is not None and len(answer.leases) == EACH
            has[rank] = tuple(piece.shard_index for piece in answer.leases)

    turn(1)
    early = held()
    for number in range(DONE // (WORKERS * EACH)):
        turn(number + 2)
    late = held()
    tracemalloc.stop()
    kept = written(ledger.state)
    begun = time.perf_counter()
    for _ in range(restores):
        Ledger(read(kept), 0.0)
    return {"seconds": time.perf_counter() - begun, "early": early, "late": late, "kept": len(kept)}


def dlrover(restores: int) -> dict[str, object]:
    os.environ["DLROVER_LOG_LEVEL"] = "ERROR"  # two lines for each shard would be the slowest part of this
    from dlrover.proto import elastic_training_pb2
    from dlrover.python.common.comm import TaskResult
    from dlrover.python.master.monitor.perf_monitor import PerfMonitor
    from dlrover.python.master.shard.dataset_splitter import new_dataset_splitter
    from dlrover.python.master.shard.task_manager import TaskManager

    name = "benchmark"
    tracemalloc.start()
    master = TaskManager(0, PerfMonitor())
    splitter = new_dataset_splitter(True, SHARD, SHARDS * SHARD, 1, name, "table")
    master.new_dataset(SHARD, SHARDS * SHARD, name, splitter, elastic_training_pb2.TRAINING)
    has: dict[int, list[int]] = {rank: [] for rank in range(WORKERS)}

    def turn() -> None:
        for rank in range(WORKERS):
            for task in has[rank]:
                master.report_dataset_task(TaskResult(name, task, ""), True)
            has[rank] = [master.get_dataset_task("worker", rank, name).task_id for _ in range(EACH)]

    turn()
    early = held()
    for _ in range(DONE // (WORKERS * EACH)):
        turn()
    late = held()
    tracemalloc.stop()
    kept = master.get_dataset_checkpoint(name).to_json()
    begun = time.perf_counter()
    for _ in range(restores):
        assert master.restore_dataset_from_checkpoint(kept)
    return {"seconds": time.perf_counter() - begun, "early": early, "late": late, "kept": len(kept)}


def main(kind: str, restores: int, answer: Path) -> None:
    found = (elastic_run if kind == "elastic-run" else dlrover)(restores)
    part = answer.with_suffix(".part")
    part.write_text(json.dumps(found), encoding="utf-8")
    part.rename(answer)


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), Path(sys.argv[3]))
