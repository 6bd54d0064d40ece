"""A thread imports a module that takes long to start up; the loop imports it, too, and waits for the import lock."""

import sys
import tempfile
import threading
import time
from pathlib import Path

import torch
import torch.distributed as dist

MODULE = """
import time
time.sleep(15)      # licence check
def score(value):
    return value * 2
"""


def load() -> None:
    import slow_metric_of_this_job  # noqa


def main() -> None:
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    folder = tempfile.mkdtemp()
    Path(folder, "slow_metric_of_this_job.py").write_text(MODULE)
    sys.path.insert(0, folder)
    for step in range(60):
        dist.all_reduce(torch.rand(3))
        time.sleep(0.05)
        if rank == 2 and step == 40:
            threading.Thread(target=load).start()
            time.sleep(0.3)
            from slow_metric_of_this_job import score

            print(score(2), flush=True)
    dist.destroy_process_group()


main()
