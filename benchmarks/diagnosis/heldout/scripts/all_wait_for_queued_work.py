"""Every rank asks a queue for its next task, by design; the next tasks come after a while."""

import socket
import threading
import time
from datetime import timedelta

import torch
import torch.distributed as dist


class TaskQueue:
    """What a message broker is in production: hands tasks to consumers that block."""

    def __init__(self) -> None:
        self.server = socket.create_server(("127.0.0.1", 0))
        self.port = self.server.getsockname()[1]

    def serve(self, consumers: int) -> None:
        connections = [self.server.accept()[0] for _ in range(consumers)]
        for task in range(4):
            time.sleep(16 if task == 2 else 0)
            for connection in connections:
                connection.sendall(bytes([task + 1]))
            for connection in connections:
                connection.recv(1)


def main() -> None:
    dist.init_process_group("gloo", timeout=timedelta(minutes=10))
    rank, world = dist.get_rank(), dist.get_world_size()
    box = [0]
    if rank == 0:
        broker = TaskQueue()
        threading.Thread(target=broker.serve, args=(world,), daemon=True).start()
        box = [broker.port]
    dist.broadcast_object_list(box, src=0)
    queue = socket.create_connection(("127.0.0.1", box[0]))
    for _ in range(4):
        task = queue.recv(1)[0]
        for _ in range(15):
            dist.all_reduce(torch.full((4,), float(task)))
            time.sleep(0.1)
        print(f"rank {rank} did task {task}", flush=True)
        queue.sendall(b"d")
    dist.destroy_process_group()


main()
