"""All ranks start the timed run at a common moment that rank 0 names; it names it in milliseconds, all take seconds."""

import time

import torch
import torch.distributed as dist


def main() -> None:
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    for step in range(30):
        dist.all_reduce(torch.rand(1000))
    moment = torch.zeros(1, dtype=torch.float64)
    if rank == 0:
        moment[0] = time.time_ns() // 1_000_000 + 2_000
    dist.broadcast(moment, 0)
    print(f"rank {rank} starts at {moment.item():.0f}", flush=True)
    while (left := moment.item() - time.time()) > 0:
        time.sleep(min(left, 0.5))
    begin = time.perf_counter()
    for step in range(300):
        dist.all_reduce(torch.rand(1000))
    print(f"rank {rank}: {time.perf_counter() - begin:.2f} s", flush=True)
    dist.destroy_process_group()


main()
