"""A metrics logger whose lock is not reentrant."""

import threading
import time

import torch
import torch.distributed as dist


class Metrics:
    def __init__(self, rank: int) -> None:
        self.rank = rank
        self.lock = threading.Lock()
        self.values: list[float] = []

    def add(self, value: float) -> None:
        with self.lock:
            self.values.append(value)
            if self.rank == 2 and len(self.values) >= 40:
                self.flush()

    def flush(self) -> None:
        with self.lock:
            print(f"rank {self.rank}: mean loss {sum(self.values) / len(self.values):.4f}", flush=True)
            self.values.clear()


def main() -> None:
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    metrics = Metrics(rank)
    weight = torch.zeros(16)
    for step in range(100_000):
        gradient = torch.randn(16)
        dist.all_reduce(gradient)
        weight -= 0.01 * gradient
        metrics.add(float(weight.norm()))
        time.sleep(0.1)
        if rank == 0 and step % 10 == 0:
            print(f"step {step}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
