"""A node manager freezes the control group of rank 1, and forgets it."""

import os
import subprocess
import time

import torch
import torch.distributed as dist

GROUP = f"/sys/fs/cgroup/freezer/heldout-{os.environ['MASTER_PORT']}"
MANAGER = """
sleep 4
mkdir $1
echo $2 > $1/cgroup.procs
echo FROZEN > $1/freezer.state
for n in $(seq 130); do kill -0 $3 && sleep 1; done
echo THAWED > $1/freezer.state
sleep 0.5
kill -9 $2
sleep 0.5
rmdir $1
"""


def main() -> None:
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    if rank == 1:
        words = ["setsid", "-f", "sh", "-c", MANAGER, "manager", GROUP, str(os.getpid()), str(os.getppid())]
        subprocess.run(words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=True)
    for step in range(100_000):
        dist.all_reduce(torch.rand(3))
        time.sleep(0.1)


main()
