"""An upload of a checkpoint to a store that stops reading in the middle: `sendall` waits for room."""

import socket
import threading
import time

import torch
import torch.distributed as dist


def store(server: socket.socket, limit: int) -> None:
    """Takes what comes up to its quota, then nothing, and leaves the connection as it is."""
    kept = []
    while True:
        peer, _ = server.accept()
        kept.append(peer)
        while limit > 0 and (part := peer.recv(1 << 16)):
            limit -= len(part)


def upload(address: tuple, weights: torch.Tensor) -> None:
    with socket.create_connection(address) as peer:
        peer.sendall(weights.numpy().tobytes())


def main() -> None:
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    weights = torch.randn(4_000_000)
    if rank == 0:
        server = socket.create_server(("127.0.0.1", 0))
        threading.Thread(target=store, args=(server, 40_000_000), daemon=True).start()
    for step in range(1, 100_000):
        dist.all_reduce(weights[:100])
        time.sleep(0.1)
        if step % 10 == 0:
            if rank == 0:
                upload(server.getsockname(), weights)
            print(f"rank {rank}: step {step}", flush=True)


main()
