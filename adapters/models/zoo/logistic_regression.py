"""Logistic regression: how likely a record's label is 1, from numbers and categories.

    elastic-run train model.py --data='train/*.csv' --validate='test/*.csv' --epochs=2 --nproc-per-node=2

Change the names of the columns to yours.
"""

from collections.abc import Mapping
from typing import Any
from zlib import crc32

import torch
from torch import Tensor, nn

import elastic_run

NUMBERS = ("price", "age")
CATEGORIES = ("user", "advert")
LABEL = "click"
BUCKETS = 2**16  # a category's value has the weight of the bucket that its hash names


class LogisticRegression(nn.Module):
    """A weight for each number and for each bucket; the output is a logit for each record."""

    def __init__(self) -> None:
        super().__init__()
        self.numbers = nn.Linear(len(NUMBERS), 1)
        self.categories = nn.EmbeddingBag(BUCKETS, 1, mode="sum")
        nn.init.zeros_(self.categories.weight)

    def forward(self, numbers: Tensor, buckets: Tensor) -> Tensor:
        return (self.numbers(numbers) + self.categories(buckets)).squeeze(1)


def forward() -> nn.Module:
    return LogisticRegression()


def loss(output: Tensor, labels: Tensor) -> Tensor:
    return nn.functional.binary_cross_entropy_with_logits(output, labels)


def optimizer(parameters: list[nn.Parameter]) -> torch.optim.Optimizer:
    return torch.optim.Adam(parameters, lr=0.01)


def feed(columns: Mapping[str, Any]) -> tuple[Any, Any]:
    numbers = torch.stack([torch.as_tensor(columns[name], dtype=torch.float32) for name in NUMBERS], dim=1)
    buckets = [[crc32(f"{name}={value}".encode()) % BUCKETS for value in columns[name]] for name in CATEGORIES]
    labels = torch.as_tensor(columns[LABEL], dtype=torch.float32) if LABEL in columns else None
    return (numbers.nan_to_num(), torch.tensor(buckets).T), labels  # what the module takes, and what the loss takes


def metrics(output: Tensor, labels: Tensor) -> dict[str, Tensor]:
    return {"accuracy": ((output > 0) == (labels > 0.5)).float()}


if __name__ == "__main__":  # python model.py train --data='train/*.csv': one process, for a debugger
    elastic_run.models.main()
