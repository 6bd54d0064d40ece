"""A thread reads an HDF5 file through a socket that is silent, under h5py's global lock; the loop wants its own file."""

import os
import socket
import tempfile
import threading
import time

import h5py
import numpy as np
import torch
import torch.distributed as dist


class SocketFile:
    def __init__(self, connection: socket.socket) -> None:
        self.connection = connection

    def seek(self, position: int, whence: int = 0) -> int:
        return 10_000 if whence == 2 else position

    def tell(self) -> int:
        return 0

    def readinto(self, buffer) -> int:
        return self.connection.recv_into(buffer)

    def read(self, size: int) -> bytes:
        return self.connection.recv(size)


def prefetch(connection: socket.socket) -> None:
    with h5py.File(SocketFile(connection), "r") as file:
        print(list(file))


def main() -> None:
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    ours, theirs = socket.socketpair()
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "data.h5")
        with h5py.File(path, "w") as file:
            file["x"] = np.random.rand(100, 16).astype("float32")
        with h5py.File(path, "r") as file:
            for step in range(100_000):
                x = torch.from_numpy(file["x"][step % 100])
                dist.all_reduce(x)
                time.sleep(0.1)
                if step == 30 and rank == 1:
                    threading.Thread(target=prefetch, args=(ours,), daemon=True).start()
                if step % 10 == 0:
                    print(rank, step, flush=True)


main()
