"""How surely a slow rank is named: by how much more it has to do, and how busy the machine is.

    python -m benchmarks.diagnosis.stragglers [-n 10] [--factors 1,1.5,2,3] [--busy 0,4,16]

Three gloo ranks train. Rank 1 has so many times the others' work in each step; beside the job, so many processes take
all the processor time that they get. It prints how often rank 1 was named first, how often another was, and after what
time. With the factor 1 nobody may be named.
"""

import argparse
import asyncio
import contextlib
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Generator
from pathlib import Path
from statistics import median

from ..arena import adopt_orphans
from .trial import end_launcher, read_findings

SCRIPT = Path(__file__).with_name("scripts") / "straggler.py"
HANG_TIMEOUT = 4.0
SLOW_RANK = 1


async def find_slow_rank(factor: float, seconds: float) -> tuple[int | None, float]:
    """Which rank is named first as slow, None for nobody, and how long after the launcher's start."""
    with tempfile.TemporaryDirectory(prefix="elastic-run-stragglers_") as folder:
        trace = Path(folder) / "trace"
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "elastic_run", "--standalone", "--nproc-per-node=3", "--max-restarts=0"),
            *(f"--hang-timeout={HANG_TIMEOUT:g}", f"--trace={trace}", str(SCRIPT), str(factor), str(seconds)),
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.DEVNULL,
            stderr=asyncio.subprocess.DEVNULL,
            env={**os.environ, "OMP_NUM_THREADS": "1"},
            start_new_session=True,
        )
        begun = time.monotonic()
        try:
            while time.monotonic() < begun + seconds + 60:
                for _, found in read_findings(trace):
                    if str(found["kind"]).startswith("slow-"):
                        return int(found["rank"]), time.monotonic() - begun
                if process.returncode is not None:
                    break
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(0.25):
                        await process.wait()
            return None, 0.0
        finally:
            await end_launcher(process)


@contextlib.contextmanager
def take_processors(count: int) -> Generator[None]:
    """So many processes take all the processor time that they get."""
    busy = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(count)]
    try:
        yield
    finally:
        for each in busy:
            each.kill()
            each.wait()


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.diagnosis.stragglers", description=__doc__)
    parser.add_argument("-n", type=int, default=10, help="runs of each")
    parser.add_argument("--factors", default="1,1.5,2,3")
    parser.add_argument("--busy", default="0,4,16")
    parser.add_argument("--seconds", type=float, default=60.0, help="of training, until it counts as missed")
    given = parser.parse_args()
    adopt_orphans()
    for busy in [int(each) for each in given.busy.split(",")]:
        for factor in [float(each) for each in given.factors.split(",")]:
            with take_processors(busy):
                found = [asyncio.run(find_slow_rank(factor, given.seconds)) for _ in range(given.n)]
            right = [seconds for rank, seconds in found if rank == SLOW_RANK]
            others = sum(rank not in (None, SLOW_RANK) for rank, _ in found)
            print(
                f"{factor:g} times the work, {busy} busy processes, load {os.getloadavg()[0]:.0f}: "
                f"{len(right)} of {given.n} found"
                + (f" after {median(right):.0f} s" if right else "")
                + f", {others} others named",
                flush=True,
            )


if __name__ == "__main__":
    main()
