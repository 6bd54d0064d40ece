"""A log handler with a plain lock of its own formats an object whose text logs again, in the same thread."""

import logging
import threading
import time

import torch
import torch.distributed as dist

log = logging.getLogger("train")


class RingHandler(logging.Handler):
    def __init__(self) -> None:
        super().__init__()
        self.lines: list[str] = []
        self.guard = threading.Lock()

    def emit(self, record: logging.LogRecord) -> None:
        with self.guard:
            self.lines = [*self.lines[-50:], record.getMessage()]


class Stats:
    def __init__(self, values: torch.Tensor) -> None:
        self.values = values

    def __str__(self) -> str:
        if self.values.std() > 1e3:
            log.warning("outlier: %s", self.values.max().item())
        return f"mean={self.values.mean():.3f}"


def train(rank: int) -> None:
    for step in range(1_000_000):
        batch = torch.randn(100)
        if rank == 2 and step == 35:
            batch[17] = 1e6
        log.info("%s", Stats(batch))
        dist.all_reduce(batch.clamp_(-3, 3))
        time.sleep(0.1)
        if rank == 0 and step % 5 == 0:
            print("step", step, flush=True)


dist.init_process_group("gloo")
log.setLevel(logging.INFO)
log.addHandler(RingHandler())
train(dist.get_rank())
