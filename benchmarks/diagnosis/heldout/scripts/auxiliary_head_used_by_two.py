"""The auxiliary head is left out on one rank in the last step; its buckets are never reduced there."""

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel


class Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.body, self.head, self.extra = nn.Linear(8, 8), nn.Linear(8, 2), nn.Linear(8, 3)

    def forward(self, x: torch.Tensor, extra: bool) -> torch.Tensor:
        x = self.body(x)
        return self.head(x).sum() + (self.extra(x).sum() if extra else 0)


def main() -> None:
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    model = DistributedDataParallel(Model())
    optimizer = torch.optim.SGD(model.parameters(), 0.01)
    for epoch in range(100):
        for step in range(10):
            optimizer.zero_grad()
            extra = not (rank == 2 and epoch == 1 and step == 9)  # the last batch has no masks
            model(torch.rand(4, 8), extra).backward()
            optimizer.step()
        results = [None] * 3
        dist.all_gather_object(results, {"epoch": epoch, "rank": rank})


main()
