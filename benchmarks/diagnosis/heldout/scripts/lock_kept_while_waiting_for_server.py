"""One rank holds the dataset's file lock while it reads from a socket that stays silent; the others want the lock."""

import fcntl
import os
import socket
import tempfile
import time

import torch
import torch.distributed as dist


class Licence:
    """One rank at a time may read from the source."""

    def __init__(self, path: str) -> None:
        self.path = path

    def __enter__(self) -> None:
        self.file = open(self.path, "w")
        fcntl.flock(self.file, fcntl.LOCK_EX)

    def __exit__(self, *error: object) -> None:
        self.file.close()


def read(connection: socket.socket) -> bytes:
    return connection.recv(100)


def main() -> None:
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    box = [os.path.join(tempfile.mkdtemp(prefix="source-"), "lock")]
    dist.broadcast_object_list(box, src=0)
    listener = socket.create_server(("127.0.0.1", 0))
    client = socket.create_connection(listener.getsockname())
    source, _ = listener.accept()
    for epoch in range(1_000):
        if not (rank == 2 and epoch == 3):
            source.sendall(b"shard")
        time.sleep(0.0 if rank == 2 else 0.3)
        with Licence(box[0]):
            read(client)
        for _ in range(10):
            dist.all_reduce(torch.ones(3))
            time.sleep(0.1)
        print(f"rank {rank} epoch {epoch}", flush=True)


main()
