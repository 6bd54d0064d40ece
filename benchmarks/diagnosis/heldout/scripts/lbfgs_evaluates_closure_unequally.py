"""The closure of L-BFGS averages the gradients; a rank whose part is solved already evaluates it once and goes on."""

import torch
import torch.distributed as dist


def main() -> None:
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(rank)
    bias_group = dist.new_group([0, 1, 2])
    for block in range(50):
        x = torch.randn(64, 8)
        target = x @ torch.randn(8) + torch.randn(64)
        w = torch.zeros(8, requires_grad=True)
        if block == 6 and rank == 1:
            x, target = torch.zeros(64, 8), torch.zeros(64)  # an empty slot in the data
        optimizer = torch.optim.LBFGS([w], max_iter=5, tolerance_grad=1e-30, tolerance_change=-1)

        def closure():
            optimizer.zero_grad()
            loss = (x @ w - target).square().mean()
            loss.backward()
            mean = loss.detach().clone()
            dist.all_reduce(mean)
            return loss

        optimizer.step(closure)
        bias = w.detach().mean()
        dist.all_reduce(bias, group=bias_group)
        print(f"[{rank}] block {block}: bias {bias:.3f}", flush=True)


main()
