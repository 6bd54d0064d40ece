"""Records are sent to the log daemon's datagram socket; the daemon has it open, but does not read any more."""

import logging
import logging.handlers
import os
import socket
import tempfile
import time

import torch
import torch.distributed as dist


def main() -> None:
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "log")
        daemon = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        daemon.bind(path)
        logger = logging.getLogger("train")
        logger.setLevel(logging.INFO if rank == 0 else logging.WARNING)
        logger.addHandler(logging.handlers.SysLogHandler(path))
        for step in range(100_000):
            loss = torch.rand(1)
            dist.all_reduce(loss)
            logger.info("step %d loss %.3f %s", step, loss.item(), "." * 400)
            time.sleep(0.01)


main()
