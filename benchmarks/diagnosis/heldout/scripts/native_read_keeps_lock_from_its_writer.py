"""A driver called with the interpreter's lock held reads a pipe that a Python thread of the same process shall fill."""

import ctypes
import os
import threading
import time

import torch
import torch.distributed as dist

libc = ctypes.PyDLL(None)


def feed(descriptor: int, ready: threading.Event, late: float) -> None:
    if late:
        ready.set()
    time.sleep(late)
    os.write(descriptor, b"frame" * 10)
    ready.set()


def grab(late: float) -> bytes:
    reader, writer = os.pipe()
    ready = threading.Event()
    thread = threading.Thread(target=feed, args=(writer, ready, late))
    thread.start()
    ready.wait()
    buffer = ctypes.create_string_buffer(50)
    libc.read(reader, buffer, 50)
    thread.join()
    os.close(reader)
    os.close(writer)
    return buffer.raw


def main() -> None:
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    for step in range(10_000):
        frame = grab(0.2 if rank == 0 and step == 50 else 0.0)
        pixels = torch.tensor(list(frame), dtype=torch.float32)
        dist.all_reduce(pixels)
        time.sleep(0.05)
        if step % 10 == 0:
            print(rank, step, flush=True)


main()
