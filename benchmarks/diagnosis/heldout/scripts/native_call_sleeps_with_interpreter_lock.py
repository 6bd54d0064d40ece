"""Reads a sensor through a C library between training steps."""

import ctypes
import threading
import time

import torch
import torch.distributed as dist

lib = ctypes.PyDLL(None)
lib.poll.argtypes = [ctypes.c_void_p, ctypes.c_ulong, ctypes.c_int]


def read_sensor(timeout_ms):
    """Waits for the next value, at most the given time."""
    lib.poll(None, 0, timeout_ms)
    return time.time() % 1


def heartbeat(rank):
    n = 0
    while True:
        time.sleep(1.5)
        n += 1
        print(f"rank {rank} is alive ({n})") if n < 4 else None


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    threading.Thread(target=heartbeat, args=(rank,), daemon=True).start()
    w = torch.zeros(10)
    for step in range(500):
        timeout = 50
        if rank == 0 and step == 28:
            timeout = -1  # not set in this host's configuration
        v = torch.full((10,), read_sensor(timeout))
        dist.all_reduce(v)
        w += v
        time.sleep(0.12)
        if step % 10 == 0 and rank == 1:
            print("step", step, float(w[0]))
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
