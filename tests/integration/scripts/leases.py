"""A worker that leases shards and does nothing with them, and writes down each lease and each receipt.

    lease <round> <rank> <shard>      the master has answered with it
    told <round> <rank> <shard>       the master is told next that it is done
    done <round> <rank> <shard>       the master has answered the request that told of it

It says `half` when it has got a shard from the second half, and waits there until the test says `go`.
"""

import argparse
import os
import signal
import sys
import time

import puppet

from elastic_run.adapters.client.channel import Call, Channel
from elastic_run.adapters.client.context import AGENT, context
from elastic_run.master.data.ledger import Answer, Dataset, Mark, Request

here = context()


def main() -> None:
    """Until there are no more leases."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--tracking", required=True)
    parser.add_argument("--shards", type=int, required=True)
    parser.add_argument("--log", required=True)
    options = parser.parse_args()
    strings = puppet.connect()
    log = os.open(options.log, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    channel = Channel(os.environ[AGENT])

    def note(what: str, shard_indices: tuple[int, ...]) -> None:
        os.write(
            log, "".join(f"{what} {here.round} {here.rank} {shard_index}\n" for shard_index in shard_indices).encode()
        )

    dataset = Dataset("data", options.shards, 1, options.shards, tracking=options.tracking)
    ask(channel, Request("open", "data", here.round, here.rank, here.world_size, dataset=dataset))
    shard_indices: tuple[int, ...] = ()
    number, told = 0, False
    while True:
        number += 1
        marks = tuple(Mark(shard_index) for shard_index in shard_indices)
        request = Request(
            "exchange", "data", here.round, here.rank, here.world_size, sequence=number, marks=marks, wants=2
        )  # fmt: skip
        note("told", shard_indices)
        answer = ask(channel, request)
        note("done", shard_indices)
        shard_indices = tuple(piece.shard_index for piece in answer.leases)
        note("lease", shard_indices)
        if answer.ended:
            return
        if shard_indices and not told and max(shard_indices) >= options.shards // 2:
            told = True
            strings.hold("half")
        time.sleep(0.005)  # the work


def ask(channel: Channel, request: Request) -> Answer:
    """What the master says in the end; waits to be ended where the round is over."""
    while True:
        back = channel.ask(Call("ledger", here.round, request))
        if back.answer is None:
            sys.exit(f"the agent has no answer: {back.text}")
        if back.answer.kind == "ok":
            return back.answer
        if back.answer.kind == "refused":
            sys.exit(back.answer.text)
        if back.answer.kind == "stale":
            signal.pause()


if __name__ == "__main__":
    main()
