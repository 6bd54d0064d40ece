"""Ring exchange of activations; the direction can be reversed."""

import time

import torch
import torch.distributed as dist


def exchange(x, rank, world, reverse):
    right, left = (rank + 1) % world, (rank - 1) % world
    if reverse:
        right, left = left, right
    out = torch.empty_like(x)
    req = dist.isend(x, dst=right)
    dist.recv(out, src=left)
    req.wait()
    return out


def schedule(step, rank):
    # ranks switch direction after the warm-up
    last_warmup = 18
    if rank == 1:
        last_warmup = 17
    return step > last_warmup


def main():
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    x = torch.full((1000,), float(rank))
    for step in range(500):
        x = exchange(x, rank, world, schedule(step, rank))
        x = torch.tanh(x + 0.01)
        time.sleep(0.2)
        if step % 5 == 0:
            print(f"rank {rank} step {step} x {x[0]:.4f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
