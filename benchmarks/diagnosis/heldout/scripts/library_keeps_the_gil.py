"""A C library is called through `PyDLL`, and blocks without giving up the interpreter lock."""

import ctypes
import threading
import time

import torch
import torch.distributed as dist

vendor = ctypes.PyDLL(None)


class Heartbeat(threading.Thread):
    def __init__(self) -> None:
        super().__init__(daemon=True)
        self.beats = 0

    def run(self) -> None:
        while True:
            time.sleep(0.5)
            self.beats += 1


def read_sensor(step: int) -> float:
    vendor.usleep(1_000)
    if step == 40:
        vendor.sleep(1_000_000)
    return 1.0


def main() -> None:
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    heartbeat = Heartbeat()
    heartbeat.start()
    for step in range(100_000):
        value = torch.tensor([read_sensor(step) if rank == 0 else 0.0])
        dist.broadcast(value, src=0)
        time.sleep(0.1)
        if step % 10 == 0:
            print(f"rank {rank} step {step} beats {heartbeat.beats}", flush=True)


main()
