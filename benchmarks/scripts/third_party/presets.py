"""The transforms of `vision_train.py`, in a module of its own."""

# The libraries annotate themselves only in part:
# pyright: basic

import torch
from torchvision import transforms
from torchvision.transforms.functional import InterpolationMode


class TrainPreset:
    def __init__(self, interpolation: InterpolationMode = InterpolationMode.BILINEAR) -> None:
        self.transforms = transforms.Compose(
            [transforms.RandomResizedCrop(32, interpolation=interpolation), transforms.PILToTensor()]
        )

    def __call__(self, image) -> torch.Tensor:
        return self.transforms(image).float() / 255
