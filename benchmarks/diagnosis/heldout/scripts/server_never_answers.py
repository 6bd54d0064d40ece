"""The model registry accepts the connection and says nothing more."""

import json
import socket
import threading
import time
from urllib.request import Request, urlopen

import torch
import torch.distributed as dist


def registry() -> int:
    """A registry on this machine that is overloaded; returns its port."""
    server = socket.create_server(("127.0.0.1", 0))
    held = []

    def accept() -> None:
        while True:
            held.append(server.accept()[0])

    threading.Thread(target=accept, daemon=True).start()
    return server.getsockname()[1]


def publish(port: int, step: int, loss: float) -> None:
    body = json.dumps({"step": step, "loss": loss}).encode()
    request = Request(f"http://127.0.0.1:{port}/models", data=body, method="POST")
    with urlopen(request) as answer:
        print("published:", answer.status, flush=True)


def main() -> None:
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    weight = torch.randn(32)
    for step in range(1, 50_000):
        gradient = weight + torch.randn(32)
        dist.all_reduce(gradient)
        weight -= 0.01 * gradient
        time.sleep(0.1)
        if rank == 0:
            if step % 10 == 0:
                print(f"step {step} |w| {weight.norm():.3f}", flush=True)
            if step % 35 == 0:
                publish(registry(), step, weight.norm().item())


main()
