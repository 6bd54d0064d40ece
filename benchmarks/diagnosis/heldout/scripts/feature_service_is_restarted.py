"""Asks a feature service for every tenth step; the service may be restarted by its owners."""

import socket
import subprocess
import sys
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

SERVICE = """
import socketserver, sys, time
class Handler(socketserver.StreamRequestHandler):
    def handle(self):
        self.rfile.readline()
        self.wfile.write(b"0.5\\n")
class Server(socketserver.TCPServer):
    allow_reuse_address = True
time.sleep(float(sys.argv[2]))
with Server(("127.0.0.1", int(sys.argv[1])), Handler) as server:
    server.serve_forever()
"""


def ask(port, step):
    while True:
        try:
            with socket.create_connection(("127.0.0.1", port), timeout=5) as connection:
                connection.sendall(f"{step}\n".encode())
                return float(connection.makefile().readline())
        except OSError:
            time.sleep(1)


def start(port, delay):
    return subprocess.Popen([sys.executable, "-c", SERVICE, str(port), str(delay)])


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    service = start(port, 0)
    model = DDP(nn.Linear(8, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for step in range(50):
        if step == 25 and rank == 1:
            service.kill()
            service.wait()
            service = start(port, 15)
        feature = ask(port, step) if step % 10 == 0 else 0.0
        optimizer.zero_grad()
        loss = model(torch.randn(16, 8) + feature).pow(2).mean()
        loss.backward()
        optimizer.step()
        if step % 10 == 0:
            print(f"[rank {rank}] step {step} loss {loss.item():.4f}", flush=True)
    service.kill()
    service.wait()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
