"""Labels samples by an interface that permits a number of requests in a time."""

import time

import torch
import torch.distributed as dist


class RateLimiter:
    def __init__(self, calls, period):
        self.calls, self.period = calls, period
        self.used, self.start = 0, time.monotonic()

    def acquire(self):
        if self.used == self.calls:
            time.sleep(max(0.0, self.start + self.period - time.monotonic()))
            self.used, self.start = 0, time.monotonic()
        self.used += 1


def label(limiter, i):
    limiter.acquire()
    return float(i % 3)


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    limiter = RateLimiter(calls=48, period=17)
    for step in range(24):
        y = torch.tensor([label(limiter, step * 4 + k) for k in range(4)])
        dist.all_reduce(y)
        time.sleep(0.25)
        if step % 3 == 0:
            print(f"rank {rank} step {step} labels {y.tolist()}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
