"""`python -m benchmarks.server_losses`: loses one of two parameter servers again and again, and times the pushes.

One worker pushes as fast as it can. A server is killed, or with --silent stopped, each time when every row has its copy
again. What a loss costs is the longest time without an answered push after it.
"""

import argparse
import itertools
import os
import random
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import psutil

from .arena import adopt_orphans

SCRIPT = Path(__file__).parent / "scripts" / "push_and_count.py"
RECORDS_EACH, BATCH = 2_000_000, 256
"""Records, at most, between two losses; of one push."""

WHOLE = "all rows on parameter servers have a second copy"
"""What the launcher says after each loss."""

AFTER, SILENT_AFTER, BOUND = 3.0, 15.0, 240.0
"""Seconds: after a loss, in which its cost shows; after one that nobody sees at once; for every wait."""


def _server_pids(parent: int) -> list[int]:
    children = psutil.Process(parent).children()
    return sorted(each.pid for each in children if "adapters.servers.server" in " ".join(each.cmdline()))


def measure_losses(kills: int, silent: bool, draw: random.Random) -> tuple[list[float], list[float], str]:
    """Seconds without an answered push after each kill; those between pushes otherwise; what was counted."""
    after, records = SILENT_AFTER if silent else AFTER, RECORDS_EACH * (kills + 1)
    with tempfile.TemporaryDirectory(prefix="elastic-run-benchmark-") as name:
        folder = Path(name)
        times, log = folder / "times", folder / "log"
        words = ["--standalone", "--nproc-per-node=1", "--servers=2", str(SCRIPT), str(times), str(records), str(BATCH)]
        with (
            log.open("wb") as out,
            subprocess.Popen([sys.executable, "-m", "elastic_run", *words], cwd=folder, stdout=out, stderr=out) as job,
        ):
            killed: list[float] = []
            for kill in range(1, kills + 1):
                until = time.monotonic() + BOUND
                while log.read_text().count(WHOLE) < kill - 1 or not times.exists() or not times.stat().st_size:
                    if job.poll() is not None or time.monotonic() > until:
                        job.kill()
                        raise RuntimeError(f"no copies again before kill {kill}:\n{log.read_text()[-3000:]}")
                    time.sleep(0.02)
                time.sleep(after + draw.random())
                killed.append(time.monotonic())
                os.kill(draw.choice(_server_pids(job.pid)), signal.SIGSTOP if silent else signal.SIGKILL)
            time.sleep(after)
            times.with_suffix(".finish").touch()
            try:
                job.wait(BOUND)
            except subprocess.TimeoutExpired:
                job.kill()
                raise RuntimeError(f"the job does not end:\n{log.read_text()[-3000:]}") from None
        answered = [float(line) for line in times.read_text().split()]
        counted = times.with_suffix(".counted").read_text()
    pauses = list(itertools.pairwise(answered))
    stalls = [max((b - a for a, b in pauses if b > at and a < at + after), default=after) for at in killed]
    usual = [b - a for a, b in pauses if not any(a < at + after and b > at for at in killed)]
    return stalls, usual, counted


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--silent", action="store_true", help="stop the server, which nobody sees at once")
    options = parser.parse_args()
    adopt_orphans()
    stalls, usual, counted = measure_losses(options.kills, options.silent, random.Random(options.seed))
    done, lost, twice = map(int, counted.split())
    stalls.sort()
    print(f"{options.kills} {'stops' if options.silent else 'kills'} of a server, load {os.getloadavg()[0]:.1f}")
    print(f"without an answered push: median {statistics.median(stalls):.3f} s, longest {stalls[-1]:.3f} s")
    print(f"between two pushes otherwise: median {statistics.median(usual) * 1000:.1f} ms, longest {max(usual):.3f} s")
    print(f"records of answered pushes: {done:,}; lost {lost}, counted twice {twice}")


if __name__ == "__main__":
    main()
