"""Each rank copies its data with a shell script under flock(1), one after the other, so that the disk is not overrun."""

import os
import subprocess
import tempfile
import time

import torch
import torch.distributed as dist


def main() -> None:
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    lock = [tempfile.mktemp(prefix="disk-", suffix=".lock") if rank == 0 else None]
    dist.broadcast_object_list(lock)
    script = "for i in 1 2 3 4 5 6 7 8; do dd if=/dev/zero of=/dev/null bs=1M count=50 status=none; sleep 0.8; done"
    subprocess.run(["flock", lock[0], "bash", "-c", script], check=True)
    print(rank, "has its data", flush=True)
    dist.barrier()
    if rank == 0:
        os.unlink(lock[0])
    for step in range(30):
        dist.all_reduce(torch.rand(3))
        time.sleep(0.05)
    dist.destroy_process_group()


main()
