"""A two stage pipeline with a third rank that watches."""

import time

import torch
import torch.distributed as dist

FORWARD, BACKWARD = 1, 2


def first_stage(step):
    act = torch.full((16,), float(step))
    dist.send(act, dst=1, tag=FORWARD)
    grad = torch.empty(16)
    dist.recv(grad, src=1, tag=BACKWARD)
    return grad


def second_stage(step):
    act = torch.empty(16)
    dist.recv(act, src=0, tag=FORWARD)
    # micro batches after the warm-up are numbered
    tag = BACKWARD if step < 16 else BACKWARD + step
    dist.send(act * 0.5, dst=0, tag=tag)
    return act


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    for step in range(200):
        if rank == 0:
            out = first_stage(step)
        elif rank == 1:
            out = second_stage(step)
        else:
            out = torch.zeros(16)
        total = out.sum().reshape(1)
        dist.all_reduce(total)
        time.sleep(0.3)
        if step % 4 == 0 and rank == 2:
            print(f"step {step}: total {total.item():.1f}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
