"""A model of torchvision in a DDP loop, imported as in torchvision's references, which import a module of their own."""

# The libraries annotate themselves only in part:
# pyright: basic

import argparse
import time
import warnings

import presets
import torch
import torch.utils.data
import torchvision
from torch import distributed as dist
from torch import nn
from torchvision.transforms.functional import InterpolationMode

try:
    from torchvision import prototype
except ImportError:
    prototype = None


def main(arguments: argparse.Namespace) -> None:
    dist.init_process_group("gloo")
    begun = time.time()
    images = torchvision.datasets.FakeData(8, (3, 32, 32), 2, presets.TrainPreset(InterpolationMode.BILINEAR))
    loader = torch.utils.data.DataLoader(images, batch_size=2)
    model = nn.parallel.DistributedDataParallel(torchvision.models.resnet18(num_classes=2))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for inputs, labels in loader:
        nn.functional.cross_entropy(model(inputs), labels).backward()
        optimizer.step()
    if prototype is None:
        warnings.warn(f"{arguments.out}: without prototypes, after {time.time() - begun:.0f} s", stacklevel=1)
    dist.destroy_process_group()


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("out")
    main(parser.parse_args())
