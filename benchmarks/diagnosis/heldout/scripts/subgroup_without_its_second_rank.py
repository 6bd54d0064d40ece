"""Ranks 1 and 2 share a group, but only rank 2 enters its collective: the other tests `rank == 2`."""

import time

import torch
import torch.distributed as dist


class Evaluator:
    def __init__(self) -> None:
        self.members = [1, 2]
        self.group = dist.new_group(self.members)

    def score(self) -> float:
        score = torch.rand(1)
        dist.all_reduce(score, group=self.group)
        return score.item() / len(self.members)


def main() -> None:
    dist.init_process_group("gloo")
    rank, evaluator = dist.get_rank(), Evaluator()
    for epoch in range(1_000):
        for _ in range(15):
            gradient = torch.randn(30)
            dist.all_reduce(gradient)
            time.sleep(0.1)
        evaluates = rank in evaluator.members if epoch < 2 else rank == 2
        if evaluates:
            print(f"rank {rank} epoch {epoch} score {evaluator.score():.3f}", flush=True)
        dist.barrier()


main()
