"""xDeepFM: products of categories, number by number, beside a network and weights (Lian et al., 2018).

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

WIDTH = 8  # of a value's row
MAPS, LAYERS = 16, 2  # of products: the first has pairs, the next has triples


class XDeepFM(nn.Module):
    """The output is a logit for each record."""

    def __init__(self, features: FittedFeatures) -> None:
        super().__init__()
        self.join = features.join
        self.wide = nn.Embedding(features.rows, 1)
        self.rows = nn.Embedding(features.rows, WIDTH)
        sizes = [features.fields, *[MAPS] * LAYERS]
        self.layers = nn.ModuleList(nn.Linear(size * features.fields, MAPS) for size in sizes[:-1])
        inputs = features.numbers + WIDTH * features.fields
        self.deep = nn.Sequential(nn.Linear(inputs, 64), nn.ReLU(), nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, 1))
        self.last = nn.Linear(MAPS * LAYERS, 1)
        nn.init.zeros_(self.wide.weight)
        nn.init.normal_(self.rows.weight, std=0.3)

    def forward(self, **inputs: Tensor) -> Tensor:
        numbers, ids = self.join(inputs)
        maps = rows = self.rows(ids).transpose(1, 2)  # (records, WIDTH, fields)
        sums: list[Tensor] = []
        for layer in self.layers:
            products = (maps.unsqueeze(3) * rows.unsqueeze(2)).flatten(2)
            maps = layer(products).relu()
            sums.append(maps.sum(dim=1))
        deep = self.deep(torch.cat([numbers, rows.flatten(1)], dim=1))
        return (self.wide(ids).sum(dim=1) + self.last(torch.cat(sums, dim=1)) + deep).squeeze(1)


def forward(features: FittedFeatures) -> nn.Module:
    return XDeepFM(features)


def loss(output: Tensor, labels: Tensor) -> Tensor:
    return nn.functional.binary_cross_entropy_with_logits(output, labels.float())


def optimizer(parameters: list[nn.Parameter]) -> torch.optim.Optimizer:
    return torch.optim.Adam(parameters, lr=0.01)


def metrics(output: Tensor, labels: Tensor) -> dict[str, Tensor | elastic_run.models.AUC]:
    return {"accuracy": ((output > 0) == (labels > 0.5)).float(), "auc": elastic_run.models.AUC(output, labels)}


if __name__ == "__main__":  # python model.py train --data='train/*.csv': one process, for a debugger
    elastic_run.models.main()
