"""A normalisation synchronises its gradients in the backward pass; on one rank the layer was frozen, so it has none."""

import time

import torch
import torch.distributed as dist
from torch import nn

NORM_GROUP = None


class SharedScale(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, scale):
        ctx.save_for_backward(x)
        return x * scale

    @staticmethod
    def backward(ctx, grad):
        (x,) = ctx.saved_tensors
        grad_scale = (grad * x).sum().reshape(1)
        dist.all_reduce(grad_scale, group=NORM_GROUP)
        return grad, grad_scale


def main() -> None:
    global NORM_GROUP
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    NORM_GROUP = dist.new_group([0, 1, 2])
    layer, head = nn.Linear(8, 8), nn.Linear(8, 1)
    scale = nn.Parameter(torch.ones(1))
    for step in range(10_000):
        if step == 50 and rank == 1:  # the fine-tuning schedule of this rank's experiment
            layer.requires_grad_(False)
            scale.requires_grad_(False)
        loss = head(SharedScale.apply(layer(torch.randn(4, 8)), scale)).square().mean()
        loss.backward()
        for p in head.parameters():
            dist.all_reduce(p.grad)
            p.grad = None
        time.sleep(0.05)
        if step % 10 == 0:
            print(rank, step, loss.item(), flush=True)


main()
