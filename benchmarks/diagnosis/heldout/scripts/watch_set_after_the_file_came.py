"""Waits with inotify for the next chunk of data that a side process writes into a folder."""

import ctypes
import os
import struct
import tempfile
import threading
import time

import torch
import torch.distributed as dist
from torch import nn

libc = ctypes.CDLL(None, use_errno=True)
IN_CREATE = 0x100


def wait_for(folder, name):
    watch = libc.inotify_init()
    libc.inotify_add_watch(watch, folder.encode(), IN_CREATE)
    try:
        while True:
            events = os.read(watch, 4096)
            length = struct.unpack_from("iIII", events)[3]
            if events[16 : 16 + length].rstrip(b"\0").decode() == name:
                return os.path.join(folder, name)
    finally:
        os.close(watch)


def produce(folder, index, delay):
    time.sleep(delay)
    with open(os.path.join(folder, f"chunk-{index}"), "w") as file:
        file.write(str(index))


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    folder = tempfile.mkdtemp()
    model = nn.Linear(4, 1)
    for index in range(6):
        delay = 0.0 if (rank, index) == (1, 3) else 1.5
        writer = threading.Thread(target=produce, args=(folder, index, delay), daemon=True)
        writer.start()
        for _ in range(5):
            loss = model(torch.randn(8, 4)).pow(2).mean().detach()
            dist.all_reduce(loss)
        time.sleep(0.2)
        path = wait_for(folder, f"chunk-{index}")
        print(f"[rank {rank}] got {os.path.basename(path)}, loss {loss.item():.4f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
