"""A table of `datasets` in a DDP loop."""

# The libraries annotate themselves only in part:
# pyright: basic

import sys

import torch
import torch.distributed as dist
from datasets import Dataset
from datasets.distributed import split_dataset_by_node
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader


def main(out: str) -> None:
    dist.init_process_group("gloo")
    table = Dataset.from_dict({"x": torch.randn(16, 4).tolist()}).with_format("torch")
    mine = split_dataset_by_node(table, dist.get_rank(), dist.get_world_size())
    model = DistributedDataParallel(nn.Linear(4, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for batch in DataLoader(mine, batch_size=2):
        model(batch["x"]).square().mean().backward()
        optimizer.step()
    dist.destroy_process_group()


if __name__ == "__main__":
    main(sys.argv[1])
