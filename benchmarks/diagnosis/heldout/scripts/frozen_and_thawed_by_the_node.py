"""A node manager freezes rank 0's control group for a while, and thaws it."""

import os
import subprocess
import time

import torch
import torch.distributed as dist

GROUP = f"/sys/fs/cgroup/freezer/heldout-{os.environ['MASTER_PORT']}"
MANAGER = """
sleep 3
mkdir $1
echo $2 > $1/cgroup.procs
echo FROZEN > $1/freezer.state
sleep 12
echo THAWED > $1/freezer.state
echo $2 > ${1%/*}/cgroup.procs
rmdir $1
"""


def main() -> None:
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    if rank == 0:
        subprocess.run(["setsid", "-f", "sh", "-c", MANAGER, "manager", GROUP, str(os.getpid())], check=True)
    for step in range(100):
        dist.all_reduce(torch.rand(3))
        time.sleep(0.1)
    dist.destroy_process_group()


main()
