"""Training whose result is known exactly, whatever happens to it: N steps leave the numbers 1 to N and their sum.

Each step adds up, over all ranks, what each of them thinks its number is; a rank at another step is seen at once.
Rank 0 appends each step to the file `steps`, which is the checkpoint too: a step that was lost, or taken twice by a
worker that should have been dead, is seen there. The job goes on until the file `limit` says which step is the last.

Between two steps a worker runs what the test sends it.
"""

import json
import os
import select
import socket
import sys
import time
from pathlib import Path
from typing import Any

STEPS = Path("steps")
LIMIT = Path("limit")
STEP_SECONDS = 0.015


class Test:
    """The connection to the test, in the words of a puppet."""

    def __init__(self) -> None:
        host, port = os.environ["PUPPET"].rsplit(":", 1)
        self._socket = socket.create_connection((host, int(port)))
        self._rest = b""
        told = ("RANK", "LOCAL_RANK", "WORLD_SIZE", "GROUP_RANK", "TORCHELASTIC_RESTART_COUNT")
        hello: dict[str, Any] = {name: os.environ[name] for name in told}
        attempt = os.environ["TORCHELASTIC_ERROR_FILE"].rpartition("/attempt_")[2].partition("/")[0]
        self._send({**hello, "pid": os.getpid(), "node": os.environ["PUPPET_NODE"], "round": int(attempt)})

    def obey(self) -> None:
        """Runs what has come since; does not wait."""
        while select.select([self._socket], [], [], 0)[0]:
            data = self._socket.recv(65536)
            if not data:
                os._exit(70)  # the test is gone: leave nothing behind
            *lines, self._rest = (self._rest + data).split(b"\n")
            for line in lines:
                exec(json.loads(line), globals())
                self._send({"did": ""})

    def _send(self, value: object) -> None:
        self._socket.sendall(json.dumps(value).encode() + b"\n")


def reached() -> tuple[int, int]:
    """The last step that was taken, and the sum so far."""
    lines = STEPS.read_text().splitlines() if STEPS.exists() else []
    step, total, *_ = lines[-1].split() if lines else ("0", "0")
    return int(step), int(total)


def train(test: Test) -> None:
    import torch
    import torch.distributed as dist

    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    everyone = world * (world + 1) // 2
    began = torch.tensor(reached() if rank == 0 else (0, 0))
    dist.broadcast(began, 0)
    step, total = began.tolist()
    print(f"rank {rank} of {world} goes on after step {step}", flush=True)
    limit = 0
    while not limit or step < limit:
        test.obey()
        step += 1
        last = int(LIMIT.read_text()) if rank == 0 and LIMIT.exists() else 0
        shared = torch.tensor([step * (rank + 1), last])
        dist.all_reduce(shared)
        value, limit = shared.tolist()
        if value != step * everyone:
            sys.exit(f"the all-reduce of step {step} gave {value} and not {step * everyone}: somebody is elsewhere")
        total += value // everyone
        if rank == 0:
            with STEPS.open("ab", buffering=0) as steps:
                steps.write(f"{step} {total} {world} {os.getpid()}\n".encode())
            if step % 10 == 0:
                print(f"step {step}", flush=True)
        time.sleep(STEP_SECONDS)
    print(f"rank {rank} of {world} ends after {step} steps with sum {total}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    train(Test())
