"""Training is over, but a thread of one rank is not: the interpreter waits for it at exit."""

import socket
import threading
import time

import torch
import torch.distributed as dist


def export_metrics(server: socket.socket) -> None:
    """Answers a scraper, for as long as the process lives."""
    while True:
        connection, _ = server.accept()
        connection.sendall(b"steps_total 1\n")
        connection.close()


def main() -> None:
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    if rank == 2:
        server = socket.create_server(("127.0.0.1", 0))
        threading.Thread(target=export_metrics, args=(server,), name="exporter").start()
    for step in range(40):
        gradient = torch.randn(1000)
        dist.all_reduce(gradient)
        time.sleep(0.1)
        if step % 10 == 0:
            print(f"[{rank}] step {step}", flush=True)
    dist.destroy_process_group()
    print(f"[{rank}] finished", flush=True)


if __name__ == "__main__":
    main()
