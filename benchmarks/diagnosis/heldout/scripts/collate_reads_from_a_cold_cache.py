"""The collate function, in a loader's worker, waits for a cache server that warms up for twelve seconds."""

import socket
import threading
import time

import torch
import torch.distributed as dist
from torch.utils.data import DataLoader, TensorDataset


def serve(server: socket.socket, warm: float) -> None:
    while True:
        connection, _ = server.accept()
        time.sleep(max(0.0, warm - time.monotonic()))
        connection.sendall(b"1")
        connection.close()


def main() -> None:
    dist.init_process_group("gloo")
    server = socket.create_server(("127.0.0.1", 0))
    warm = time.monotonic() + (12 if dist.get_rank() == 2 else 0)
    threading.Thread(target=serve, args=(server, warm), daemon=True).start()

    def collate(rows: list) -> torch.Tensor:
        with socket.create_connection(server.getsockname()) as connection:
            return torch.stack([row for (row,) in rows]) * float(connection.recv(1))

    data = TensorDataset(torch.rand(64, 4))
    for batch in DataLoader(data, 8, num_workers=1, collate_fn=collate, multiprocessing_context="fork"):
        dist.all_reduce(batch.sum())
    dist.destroy_process_group()


main()
