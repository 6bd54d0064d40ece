"""Checks with a monitored barrier that all ranks are ready for evaluation."""

import datetime
import time

import torch
import torch.distributed as dist


def evaluate(rank, items):
    correct = 0
    pending = list(range(items))
    while pending:
        item = pending.pop(0)
        if rank == 1 and item % 7 == 6 and item > 20:
            pending.append(item)  # not labelled yet, try it again later
            time.sleep(0.01)
            continue
        correct += item % 2
    return correct


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    w = torch.zeros(30)
    for epoch in range(30):
        for _ in range(5):
            g = torch.rand(30)
            dist.all_reduce(g)
            w += g
            time.sleep(0.2)
        dist.monitored_barrier(timeout=datetime.timedelta(hours=1), wait_all_ranks=True)
        correct = evaluate(rank, 12 + 4 * epoch)
        print(f"rank {rank} epoch {epoch} correct {correct}")
        dist.monitored_barrier(timeout=datetime.timedelta(hours=1), wait_all_ranks=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
