"""Started by prepare.sh, which takes its time before it starts Python."""

import time

import torch
import torch.distributed as dist


def main() -> None:
    dist.init_process_group("gloo")
    for step in range(50):
        dist.all_reduce(torch.ones(64))
        time.sleep(0.1)
        if step % 10 == 0:
            print(f"rank {dist.get_rank()} step {step}", flush=True)
    dist.destroy_process_group()


main()
