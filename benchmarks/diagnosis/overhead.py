"""What the watch of eight workers costs a node, in shares of a processor: `python -m benchmarks.diagnosis.overhead`."""

import subprocess
import sys
import time

from elastic_run.elastic_agent.diagnosis.running import Running
from elastic_run.elastic_agent.diagnosis.watch import PERIOD, ProgressWatch
from elastic_run.elastic_agent.inbox import Inbox
from elastic_run.elastic_agent.machine.node_state import NodeSettings

WORKERS, LOOKS = 8, 400
THREADS = 64
"""Of each worker: libraries start many."""

SLEEPS = f"""
import threading, time
for _ in range({THREADS}):
    threading.Thread(target=time.sleep, args=(600,), daemon=True).start()
print(flush=True)
time.sleep(600)
"""


def main() -> None:
    """Prints it for workers that compute, as the watch sees it, and for those that stand still."""
    command = [sys.executable, "-c", SLEEPS]
    workers = [subprocess.Popen(command, stdout=subprocess.PIPE) for _ in range(WORKERS)]
    try:
        for each in workers:
            assert each.stdout is not None
            each.stdout.readline()
        for timeout, words in ((3600.0, "that make progress"), (60.0, "that stand still, with children looked at")):
            spent = _seconds([each.pid for each in workers], timeout)
            print(f"{WORKERS} workers of {THREADS} threads {words}: {spent * 1e3:.2f} ms each {PERIOD:g} s")
            print(f"  {100 * spent / PERIOD:.3f} % of a processor")
    finally:
        for each in workers:
            each.kill()
            each.wait()


def _seconds(pids: list[int], timeout: float) -> float:
    """Of a processor, for one look at these."""
    running = [Running(rank, rank, pid) for rank, pid in enumerate(pids)]
    clock = iter(range(1 << 30))
    watch = ProgressWatch(
        timeout,
        lambda: running,
        lambda _: 0,
        Inbox(NodeSettings(), lambda: float(next(clock))),
        lambda _: None,
        print,
    )
    for _ in range(100):
        watch.look()
    before = time.process_time()
    for _ in range(LOOKS):
        watch.look()
    return (time.process_time() - before) / LOOKS


if __name__ == "__main__":
    main()
