"""A MemoryHandler hands its records to a handler that may send one each second."""

import logging
import logging.handlers
import time

import torch
import torch.distributed as dist

log = logging.getLogger("metrics")


class Limited(logging.Handler):
    def emit(self, record: logging.LogRecord) -> None:
        time.sleep(1)


def main() -> None:
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    log.setLevel(logging.INFO)
    log.propagate = False
    log.addHandler(logging.handlers.MemoryHandler(16, target=Limited() if rank == 1 else logging.NullHandler()))
    for step in range(70):
        dist.all_reduce(torch.rand(3))
        time.sleep(0.05)
        if step % 4 == 0:
            log.info("step %d", step)
    logging.shutdown()
    dist.barrier()
    dist.destroy_process_group()


main()
