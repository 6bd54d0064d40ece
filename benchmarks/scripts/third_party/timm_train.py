"""A model of timm in a DDP loop, with timm's own optimizer and scheduler."""

# The libraries annotate themselves only in part:
# pyright: basic

import argparse

import torch
import torch.distributed as dist
from timm import create_model
from timm.optim import create_optimizer_v2
from timm.scheduler import CosineLRScheduler
from torch.nn.parallel import DistributedDataParallel


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("out")
    parser.parse_args()
    dist.init_process_group("gloo")
    model = DistributedDataParallel(create_model("resnet10t", num_classes=2))
    optimizer = create_optimizer_v2(model, opt="sgd", lr=0.1)
    schedule = CosineLRScheduler(optimizer, t_initial=2)
    for step in range(2):
        model(torch.randn(2, 3, 32, 32)).square().mean().backward()
        optimizer.step()
        schedule.step(step)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
