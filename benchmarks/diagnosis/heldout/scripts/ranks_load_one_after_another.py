"""To spare the memory, ranks load the large model one after another, each with a barrier."""

import io
import time

import torch
import torch.distributed as dist


def load(seconds: float) -> torch.Tensor:
    file = io.BytesIO()
    torch.save({str(n): torch.randn(500) for n in range(100)}, file)
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        file.seek(0)
        state = torch.load(file)
    return state["7"]


def main() -> None:
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    for _ in range(25):
        dist.all_reduce(torch.ones(4))
        time.sleep(0.1)
    print(f"rank {rank}: probe done", flush=True)
    for turn in range(world):
        if turn == rank:
            weight = load(5)
            print(f"rank {rank}: loaded {weight.numel()} numbers", flush=True)
        dist.barrier()
    for step in range(25):
        dist.all_reduce(weight)
        weight /= world
        time.sleep(0.1)
        if step % 10 == 0:
            print(f"rank {rank} step {step}", flush=True)
    dist.destroy_process_group()


main()
