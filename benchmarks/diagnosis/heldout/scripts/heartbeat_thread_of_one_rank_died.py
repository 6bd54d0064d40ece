"""Heartbeat threads meet in a group of their own, and training pauses without heartbeats; one rank's thread has died."""

import shutil
import tempfile
import threading
import time

import torch
import torch.distributed as dist

last_beat = time.monotonic()


def beat(group, folder: str) -> None:
    global last_beat
    while True:
        usage = torch.tensor([float(shutil.disk_usage(folder).used)])
        dist.all_reduce(usage, group=group)
        last_beat = time.monotonic()
        time.sleep(0.5)


def main() -> None:
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    group = dist.new_group([0, 1, 2])
    # The staging folder of rank 1 is a disk of its own.
    scratch = tempfile.mkdtemp(prefix="scratch-") if rank == 1 else tempfile.gettempdir()
    threading.Thread(target=beat, args=(group, scratch), daemon=True).start()
    for step in range(100_000):
        if step == 80:
            if rank == 1:
                shutil.rmtree(scratch)  # no longer needed
            print(rank, "warm-up is over", flush=True)
        while rank != 1 and time.monotonic() - last_beat > 4:
            time.sleep(0.2)  # the network is down: do not start anything new
        dist.all_reduce(torch.rand(10))
        time.sleep(0.05)


main()
