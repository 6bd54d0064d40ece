"""All ranks wait for many large reductions that were begun before; data flows all the time."""

import torch
import torch.distributed as dist


def main() -> None:
    dist.init_process_group("gloo")
    for step in range(5):
        dist.all_reduce(torch.rand(16))
    buffer = torch.rand(6_000_000)
    for epoch in range(2):
        works = [dist.all_reduce(buffer, async_op=True) for _ in range(60)]
        for work in reversed(works):
            work.wait()
        buffer.fill_(0.5)
    dist.destroy_process_group()


main()
