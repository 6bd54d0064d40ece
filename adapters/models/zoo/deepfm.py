"""DeepFM: what pairs of categories have to do with each other, and a network over all of them (Guo et al., 2017).

    elastic-run train model.py --data='train/*.csv' --validate='test/*.csv' --nproc-per-node=2 --servers=1

Each value of a category has a row on the job's servers, made when it is first seen. Change the names of the columns.
"""

from collections.abc import Mapping
from typing import Any
from zlib import crc32

import torch
from torch import Tensor, nn

import elastic_run
from elastic_run import servers
from elastic_run.torch import Embedding

NUMBERS = ("price", "age")
CATEGORIES = ("user", "advert")
LABEL = "click"
WIDTH = 8  # of a value's row


class DeepFM(nn.Module):
    """The output is a logit for each record."""

    def __init__(self) -> None:
        super().__init__()
        self.weights = Embedding("weights", 1, servers.Adagrad(lr=0.05), servers.Zeros())
        self.rows = Embedding("rows", WIDTH, servers.Adagrad(lr=0.05))
        inputs = len(NUMBERS) + WIDTH * len(CATEGORIES)
        self.deep = nn.Sequential(nn.Linear(inputs, 64), nn.ReLU(), nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, 1))
        self.wide = nn.Linear(len(NUMBERS), 1)

    def forward(self, numbers: Tensor, ids: Tensor) -> Tensor:
        rows = self.rows(ids)  # (records, categories, WIDTH)
        pairs = (rows.sum(dim=1).square() - rows.square().sum(dim=1)).sum(dim=1) / 2
        deep = self.deep(torch.cat([numbers, rows.flatten(1)], dim=1))
        return self.weights(ids).sum(dim=(1, 2)) + pairs + (self.wide(numbers) + deep).squeeze(1)


def forward() -> nn.Module:
    return DeepFM()


def loss(output: Tensor, labels: Tensor) -> Tensor:
    return nn.functional.binary_cross_entropy_with_logits(output, labels)


def optimizer(parameters: list[nn.Parameter]) -> torch.optim.Optimizer:
    return torch.optim.Adam(parameters, lr=0.001)  # of the network; the rows have their own


def feed(columns: Mapping[str, Any]) -> tuple[Any, Any]:
    numbers = torch.stack([torch.as_tensor(columns[name], dtype=torch.float32) for name in NUMBERS], dim=1)
    ids = [[(at << 32) + crc32(str(value).encode()) for value in columns[name]] for at, name in enumerate(CATEGORIES)]
    labels = torch.as_tensor(columns[LABEL], dtype=torch.float32) if LABEL in columns else None
    return (numbers.nan_to_num(), torch.tensor(ids).T), labels  # what the module takes, and what the loss takes


def metrics(output: Tensor, labels: Tensor) -> dict[str, Tensor]:
    return {"accuracy": ((output > 0) == (labels > 0.5)).float()}


if __name__ == "__main__":  # python model.py train --data='train/*.csv': one process, with the rows in it
    elastic_run.models.main()
