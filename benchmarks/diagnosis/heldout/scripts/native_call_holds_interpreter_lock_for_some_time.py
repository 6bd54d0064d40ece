"""Reads a slow instrument by a C call that keeps Python's global lock."""

import ctypes
import threading
import time

import torch
import torch.distributed as dist

lib = ctypes.PyDLL(None)
lib.poll.argtypes = [ctypes.c_void_p, ctypes.c_ulong, ctypes.c_int]


class Instrument:
    def __init__(self, rank):
        self.rank = rank
        self.beats = 0
        threading.Thread(target=self.beat, daemon=True).start()

    def beat(self):
        while True:
            time.sleep(0.5)
            self.beats += 1

    def read(self, milliseconds):
        lib.poll(None, 0, milliseconds)
        return self.beats


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    instrument = Instrument(rank)
    for step in range(28):
        calibrate = rank == 0 and step == 14
        v = torch.tensor([float(instrument.read(13_000 if calibrate else 40))])
        dist.all_reduce(v)
        time.sleep(0.15)
        if step % 4 == 0:
            print(f"rank {rank} step {step} beats {v.item():.0f}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
