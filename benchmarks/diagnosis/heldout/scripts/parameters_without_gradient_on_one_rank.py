"""Hand-written overlap: a rank whose head got no gradient starts no all-reduce for it, the others wait for theirs."""

import time

import torch
import torch.distributed as dist
from torch import nn


class TwoHeads(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Linear(16, 16)
        self.left = nn.Linear(16, 1)
        self.right = nn.Linear(16, 1)

    def forward(self, x: torch.Tensor, both: bool) -> torch.Tensor:
        h = self.body(x).relu()
        return self.left(h) + self.right(h) if both else self.left(h)


def reduce_gradients(model: nn.Module) -> None:
    pending = [
        dist.all_reduce(parameter.grad, async_op=True) for parameter in model.parameters() if parameter.grad is not None
    ]
    for work in pending:
        work.wait()


def main() -> None:
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(0)
    model = TwoHeads()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for step in range(100_000):
        optimizer.zero_grad(set_to_none=True)
        both = not (rank == 1 and step == 40)
        model(torch.randn(8, 16), both).mean().backward()
        reduce_gradients(model)
        optimizer.step()
        time.sleep(0.1)
        if step % 10 == 0:
            print(f"rank {rank} step {step}", flush=True)
            dist.monitored_barrier()


main()
