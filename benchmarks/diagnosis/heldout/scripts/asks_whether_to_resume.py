"""The first rank finds an older checkpoint and asks what to do with it, at a terminal where nobody sits."""

import torch
import torch.distributed as dist


def choose(found: bool) -> bool:
    return found and input("There is a checkpoint of step 1200. Resume? [Y/n] ").lower() != "n"


def main() -> None:
    dist.init_process_group("gloo")
    for step in range(5):
        dist.all_reduce(torch.rand(16))
    resume = torch.zeros(1)
    if dist.get_rank() == 0:
        resume[0] = choose(True)
    dist.broadcast(resume, src=0)
    for step in range(10_000):
        dist.all_reduce(torch.rand(16))


main()
