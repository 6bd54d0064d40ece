"""The training runs in a thread, and a rate limiter in it computed a pause of weeks from a rate near zero."""

import threading
import time

import torch
import torch.distributed as dist


class TokenBucket:
    def __init__(self, rate: float) -> None:
        self.rate = rate
        self.tokens = 1.0

    def take(self, amount: float) -> None:
        self.tokens -= amount
        if self.tokens < 0:
            time.sleep(-self.tokens / self.rate)
            self.tokens = 0.0


class Training(threading.Thread):
    def __init__(self, rank: int) -> None:
        super().__init__(name="training")
        self.rank = rank
        self.bucket = TokenBucket(rate=40.0)

    def run(self) -> None:
        for step in range(1_000_000):
            gradient = torch.randn(32)
            dist.all_reduce(gradient)
            if self.rank == 1 and step == 30:
                self.bucket.rate = 1e-6  # "as good as unlimited", thought its author
            self.bucket.take(4.0)
            if self.rank == 0 and step % 5 == 0:
                print("step", step, flush=True)


dist.init_process_group("gloo")
training = Training(dist.get_rank())
training.start()
training.join()
