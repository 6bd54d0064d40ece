"""One small collective between two nodes, in the workers' own Python, so with the torch that the job will use."""

import asyncio
import contextlib
import json
import os
import signal
from collections.abc import Mapping

from ...rendezvous.base.frozen import dataclass
from ..options.preflight import APART
from .pairs import Outcome

BYTES = 4 << 20
"""Of the tensor that is summed."""

TIMES = 8
"""Sums of which the time is taken, after one that is not."""

FORMING = 60.0
"""Seconds for both to have come: each imports torch first."""

SECONDS = 120.0
"""For all of it."""

_SCRIPT = """
import datetime, json, sys, time
host, port, rank, size, times, seconds = sys.argv[1], *map(int, sys.argv[2:6]), float(sys.argv[6])
import torch, torch.distributed as group
limit = datetime.timedelta(seconds=seconds)
store = group.TCPStore(host, port, 2, rank == 0, timeout=limit, wait_for_workers=False)
group.init_process_group("gloo", store=store, rank=rank, world_size=2, timeout=limit)
values = torch.full((size // 4,), float(rank + 1))
group.all_reduce(values)
wrong = int((values != 3.0).sum())
group.barrier()
begun = time.perf_counter()
for _ in range(times):
    group.all_reduce(values)
taken = time.perf_counter() - begun
group.barrier()
clocks = [torch.zeros(1, dtype=torch.float64) for _ in range(2)]
group.all_gather(clocks, torch.tensor([time.time()], dtype=torch.float64))
ahead = float(clocks[rank] - clocks[1 - rank])
group.barrier()
print(json.dumps({"seconds": taken, "wrong": wrong, "ahead": ahead}), flush=True)
import os
os._exit(0)
"""


@dataclass(frozen=True, slots=True)
class Place:
    """Where two nodes meet: at the first one's address."""

    host: str
    port: int
    rank: int


async def run(python: str, place: Place, environ: Mapping[str, str], seconds: float = SECONDS) -> Outcome:
    """This node's part of it; a problem in words where it came to nothing."""
    words = [place.host, place.port, place.rank, BYTES, TIMES, min(FORMING, seconds)]
    try:
        process = await asyncio.create_subprocess_exec(
            python,
            "-c",
            APART + _SCRIPT,
            *map(str, words),
            env={**environ, "OMP_NUM_THREADS": "1"},
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            start_new_session=True,
        )
    except OSError as error:
        return Outcome(problem=f"{python}: {error.strerror}")
    try:
        async with asyncio.timeout(seconds):
            out, err = await process.communicate()
    except TimeoutError:
        return Outcome(problem=f"it did not end within {seconds:g} s")
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        await process.wait()
    try:
        found = json.loads(out.decode().strip().splitlines()[-1])
    except (ValueError, IndexError):
        last = (err.decode(errors="replace").strip().splitlines() or [f"exit code {process.returncode}"])[-1]
        return Outcome(problem=last[:300])
    if found["wrong"]:
        return Outcome(problem=f"{found['wrong']} of {BYTES // 4} numbers of the sum were wrong")
    return Outcome(speed=BYTES * TIMES / max(1e-6, float(found["seconds"])), ahead=float(found["ahead"]))
