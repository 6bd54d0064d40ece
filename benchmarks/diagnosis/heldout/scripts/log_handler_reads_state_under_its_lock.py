"""A log handler takes the trainer's lock; another thread writes to the log while it has that lock."""

import logging
import threading
import time

import torch
import torch.distributed as dist

state = threading.Lock()
counts = {"samples": 0}
log = logging.getLogger("train")


class CountingHandler(logging.Handler):
    def emit(self, record: logging.LogRecord) -> None:
        time.sleep(0.002)
        with state:
            record.samples = counts["samples"]


def count() -> None:
    while True:
        with state:
            counts["samples"] += 1
            time.sleep(0.002)
            log.info("counted %d", counts["samples"])


def main() -> None:
    dist.init_process_group("gloo")
    log.addHandler(CountingHandler())
    log.setLevel(logging.INFO)
    for step in range(10_000):
        if dist.get_rank() == 0 and step == 25:
            threading.Thread(target=count, name="counter", daemon=True).start()
        log.info("step %d", step)
        dist.all_reduce(torch.rand(16))


main()
