"""A DDP loop whose settings come from hydra."""

# The libraries annotate themselves only in part:
# pyright: basic

import hydra
import torch
import torch.distributed as dist
from omegaconf import DictConfig
from torch import nn
from torch.nn.parallel import DistributedDataParallel


@hydra.main(version_base=None, config_path="conf", config_name="config")
def main(settings: DictConfig) -> None:
    dist.init_process_group("gloo")
    model = DistributedDataParallel(nn.Linear(settings.width, 2))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(settings.steps):
        model(torch.randn(4, settings.width)).square().mean().backward()
        optimizer.step()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
