"""A tracker's `atexit` handler waits for its upload thread, which waits for a silent server."""

import atexit
import queue
import socket
import threading
import time

import torch
import torch.distributed as dist


class Tracker:
    def __init__(self) -> None:
        self.server = socket.create_server(("127.0.0.1", 0))
        self.lines: queue.Queue[str | None] = queue.Queue()
        self.uploader = threading.Thread(target=self.upload, daemon=True, name="uploader")
        self.uploader.start()
        atexit.register(self.finish)

    def log(self, **values: float) -> None:
        self.lines.put(str(values))

    def upload(self) -> None:
        batch = []
        while (line := self.lines.get()) is not None:
            batch.append(line)
        with socket.create_connection(self.server.getsockname()) as connection:
            connection.sendall("\n".join(batch).encode())
            connection.recv(10)

    def finish(self) -> None:
        self.lines.put(None)
        self.uploader.join()


def main() -> None:
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    tracker = Tracker() if rank == 0 else None
    for step in range(45):
        loss = torch.rand(1)
        dist.all_reduce(loss)
        time.sleep(0.1)
        if tracker:
            tracker.log(step=step, loss=loss.item())
        if step % 10 == 0:
            print(f"rank {rank} step {step}", flush=True)
    dist.destroy_process_group()


main()
