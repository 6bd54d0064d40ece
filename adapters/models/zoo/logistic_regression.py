"""Logistic regression: how likely a record's label is 1, from numbers and categories.

    elastic-run train model.py --data='train/*.csv' --validate='test/*.csv' --epochs=2 --nproc-per-node=2

Change the features to your columns.
"""

import torch
from torch import Tensor, nn

import elastic_run
from elastic_run.features import Category, Features, FittedFeatures, Numeric

features = Features(
    price=Numeric(),
    age=Numeric(),
    user=Category(hash=2**16),  # a value has the row that its hash names
    advert=Category(),  # the 1000 most frequent values have rows
)
label = "click"


class LogisticRegression(nn.Module):
    """A weight for each number and for each id; the output is a logit for each record."""

    def __init__(self, features: FittedFeatures) -> None:
        super().__init__()
        self.join = features.join
        self.numbers = nn.Linear(features.numbers, 1)
        self.rows = nn.Embedding(features.rows, 1)
        nn.init.zeros_(self.rows.weight)

    def forward(self, **inputs: Tensor) -> Tensor:
        numbers, ids = self.join(inputs)
        return (self.numbers(numbers) + self.rows(ids).sum(dim=1)).squeeze(1)


def forward(features: FittedFeatures) -> nn.Module:
    return LogisticRegression(features)


def loss(output: Tensor, labels: Tensor) -> Tensor:
    return nn.functional.binary_cross_entropy_with_logits(output, labels.float())


def optimizer(parameters: list[nn.Parameter]) -> torch.optim.Optimizer:
    return torch.optim.Adam(parameters, lr=0.05)


def metrics(output: Tensor, labels: Tensor) -> dict[str, Tensor | elastic_run.models.AUC]:
    return {"accuracy": ((output > 0) == (labels > 0.5)).float(), "auc": elastic_run.models.AUC(output, labels)}


if __name__ == "__main__":  # python model.py train --data='train/*.csv': one process, for a debugger
    elastic_run.models.main()
