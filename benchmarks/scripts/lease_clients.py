"""One of the clients that lease shards as fast as they can: each is marked done, and the next asked for.

Called with `elastic-run` or `dlrover`, the folder of the run, the number of clients, the shards of each of them, how
many to lease at a time, and the address of DLRover's master. The clients wait for each other before the first lease.
The answer of each: when it began and ended (seconds of the monotonic clock), and the seconds from "these are done" to
having the next, each time.
"""

# Runs in two interpreters, and neither has all of these modules:
# pyright: basic, reportMissingImports=false

import json
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path

DATASET_SHARDS = 10_000_000
SHARD = 100
RANK = int(os.environ["RANK"])


def elastic_run(at_once: int) -> Callable[[], None]:
    from elastic_run.adapters.client.channel import Call, Channel
    from elastic_run.adapters.client.context import AGENT, context
    from elastic_run.master.data.ledger import Answer, Dataset, Mark, Request

    here = context()
    channel = Channel(os.environ[AGENT])
    name = "benchmark"
    dataset = Dataset(name, DATASET_SHARDS * SHARD, SHARD, DATASET_SHARDS, tracking="ack")

    def ask(request: Request) -> Answer:
        back = channel.ask(Call("ledger", here.round, request))
        if back.answer is None or back.answer.kind != "ok":
            raise RuntimeError(f"no answer: {back}")
        return back.answer

    ask(Request("open", name, here.round, here.rank, here.world_size, dataset=dataset))
    has: list[int] = []
    sequence = 0

    def next_ones() -> None:
        nonlocal sequence
        sequence += 1
        marks = tuple(Mark(shard_index) for shard_index in has)
        answer = ask(
            Request(
                "exchange", name, here.round, here.rank, here.world_size, sequence=sequence, marks=marks, wants=at_once
            )
        )
        has[:] = [piece.shard_index for piece in answer.leases]
        assert len(has) == at_once

    return next_ones


def dlrover(address: str) -> Callable[[], None]:
    os.environ |= {"NODE_ID": str(RANK), "NODE_TYPE": "worker"}
    from dlrover.proto import elastic_training_pb2
    from dlrover.python.elastic_agent.master_client import build_master_client

    client = build_master_client(address)
    name = "benchmark"
    client.report_dataset_shard_params(
        batch_size=SHARD,
        num_epochs=1,
        dataset_size=DATASET_SHARDS * SHARD,
        shuffle=True,
        num_minibatches_per_shard=1,
        dataset_name=name,
        task_type=elastic_training_pb2.TRAINING,
        storage_type="table",
    )
    has: list[int] = []

    def next_one() -> None:
        for task_id in has:
            client.report_task_result(name, task_id, "")
        there, task = client.get_task(name)
        assert there and task.shard.end > task.shard.start, task
        has[:] = [task.task_id]

    return next_one


def main(kind: str, folder: Path, clients: int, shards: int, at_once: int, address: str) -> None:
    ask = elastic_run(at_once) if kind == "elastic-run" else dlrover(address)
    ask()  # the first lease may take longer: DLRover makes its list then
    (folder / f"ready{RANK}").touch()
    while not all((folder / f"ready{rank}").exists() for rank in range(clients)):
        time.sleep(0.001)
    begun = time.monotonic()
    waits: list[float] = []
    for _ in range(shards // at_once):
        before = time.perf_counter()
        ask()
        waits.append(time.perf_counter() - before)
    answer = {"begun": begun, "ended": time.monotonic(), "waits": waits}
    part = folder / f"part{RANK}"
    part.write_text(json.dumps(answer), encoding="utf-8")
    part.rename(folder / f"answer{RANK}")


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4]), int(sys.argv[5]), sys.argv[6])
