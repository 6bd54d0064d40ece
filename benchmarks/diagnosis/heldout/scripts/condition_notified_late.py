"""Rank 0's loop waits on a Condition for a planner thread that computes."""

import heapq
import random
import threading
import time

import torch
import torch.distributed as dist


class Planner(threading.Thread):
    def __init__(self, seconds: float) -> None:
        super().__init__(daemon=True)
        self.seconds = seconds
        self.changed = threading.Condition()
        self.plan: list[int] | None = None

    def run(self) -> None:
        end, best = time.monotonic() + self.seconds, []
        while time.monotonic() < end:
            costs = [(random.random(), n) for n in range(3_000)]
            heapq.heapify(costs)
            best = [heapq.heappop(costs)[1] for _ in range(3_000)]
        with self.changed:
            self.plan = best
            self.changed.notify_all()

    def result(self) -> list[int]:
        with self.changed:
            self.changed.wait_for(lambda: self.plan is not None)
        return self.plan


def main() -> None:
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    for epoch in range(4):
        plan = [None]
        if rank == 0:
            planner = Planner(14 if epoch == 2 else 0.1)
            planner.start()
            plan = [planner.result()[0]]
        dist.broadcast_object_list(plan, src=0)
        for _ in range(15):
            dist.all_reduce(torch.ones(8))
            time.sleep(0.1)
        print(f"rank {rank} epoch {epoch} plan {plan[0]}", flush=True)
    dist.destroy_process_group()


main()
