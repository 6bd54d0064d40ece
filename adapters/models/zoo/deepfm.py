"""DeepFM: what pairs of categories have to do with each other, and a network over all of them (Guo et al., 2017).

    elastic-run train model.py --data='train/*.csv' --validate='test/*.csv' --epochs=2 --nproc-per-node=2 --servers=1

Each value of a category has a row on the job's servers, made when it is first seen. Change the features
to your columns.
"""

import torch
from torch import Tensor, nn

import elastic_run
from elastic_run import servers
from elastic_run.features import Category, Features, FittedFeatures, Numeric
from elastic_run.torch import Embedding

features = Features(
    price=Numeric(),
    age=Numeric(),
    user=Category(table=True),  # ids of 63 bits: as many rows as there are values
    advert=Category(table=True),
)
label = "click"

WIDTH = 8  # of a value's row


class DeepFM(nn.Module):
    """The output is a logit for each record."""

    def __init__(self, features: FittedFeatures) -> None:
        super().__init__()
        self.join = features.join
        self.weights = Embedding("weights", 1, servers.Adagrad(lr=0.05), servers.Zeros())
        self.rows = Embedding("rows", WIDTH, servers.Adagrad(lr=0.05))
        inputs = features.numbers + WIDTH * features.fields
        self.deep = nn.Sequential(nn.Linear(inputs, 64), nn.ReLU(), nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, 1))
        self.wide = nn.Linear(features.numbers, 1)

    def forward(self, **inputs: Tensor) -> Tensor:
        numbers, ids = self.join(inputs)
        rows = self.rows(ids)  # (records, fields, WIDTH)
        pairs = (rows.sum(dim=1).square() - rows.square().sum(dim=1)).sum(dim=1) / 2
        deep = self.deep(torch.cat([numbers, rows.flatten(1)], dim=1))
        return self.weights(ids).sum(dim=(1, 2)) + pairs + (self.wide(numbers) + deep).squeeze(1)


def forward(features: FittedFeatures) -> nn.Module:
    return DeepFM(features)


def loss(output: Tensor, labels: Tensor) -> Tensor:
    return nn.functional.binary_cross_entropy_with_logits(output, labels.float())


def optimizer(parameters: list[nn.Parameter]) -> torch.optim.Optimizer:
    return torch.optim.Adam(parameters, lr=0.001)  # of the network; the rows have their own


def metrics(output: Tensor, labels: Tensor) -> dict[str, Tensor | elastic_run.models.AUC]:
    return {"accuracy": ((output > 0) == (labels > 0.5)).float(), "auc": elastic_run.models.AUC(output, labels)}


if __name__ == "__main__":  # python model.py train --data='train/*.csv': one process, with the rows in it
    elastic_run.models.main()
