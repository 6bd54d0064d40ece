"""Prints much about its activations; the wrapper shows the beginning only."""

import os
import time

import torch
import torch.distributed as dist


def describe(x):
    return " ".join(f"{v:.3f}" for v in x.flatten().tolist())


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    verbose = rank == int(os.environ.get("VERBOSE_RANK", "0"))
    layer = torch.nn.Linear(40, 40)
    h = torch.randn(8, 40)
    for step in range(500):
        with torch.no_grad():
            h = torch.tanh(layer(h))
        dist.all_reduce(h)
        h /= 3
        if verbose:
            print(f"step {step}:", describe(h), describe(h), flush=True)
        elif step % 50 == 0:
            print("step", step, flush=True)
        time.sleep(0.2)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
