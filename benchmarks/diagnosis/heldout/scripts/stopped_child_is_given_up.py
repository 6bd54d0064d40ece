"""An external tool of rank 1 is stopped by a signal. The rank waits for it with a limit, kills it and does without."""

import signal
import subprocess
import time

import torch
import torch.distributed as dist


def align(limit: float) -> bytes:
    tool = subprocess.Popen(["sh", "-c", "kill -STOP $$; echo aligned"], stdout=subprocess.PIPE)
    try:
        return tool.communicate(timeout=limit)[0]
    except subprocess.TimeoutExpired:
        tool.send_signal(signal.SIGKILL)
        tool.wait()
        return b"not aligned"


def main() -> None:
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    for step in range(60):
        dist.all_reduce(torch.rand(3))
        time.sleep(0.05)
        if rank == 1 and step == 40:
            print(align(15), flush=True)
    dist.destroy_process_group()


main()
