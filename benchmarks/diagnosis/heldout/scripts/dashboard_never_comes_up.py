"""Starts a small metrics server next to the first rank and posts the loss to it."""

import socket
import subprocess
import sys
import time

import torch
import torch.distributed as dist
from torch import nn

SERVER = "import sys; from http.server import test; test(port=int(sys.argv[1]), bind='127.0.0.1', protocol=sys.argv[3])"


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def start_dashboard():
    port = free_port()
    subprocess.Popen([sys.executable, "-c", SERVER, str(port)], stderr=subprocess.DEVNULL)
    while True:
        try:
            return socket.create_connection(("127.0.0.1", port), timeout=2)
        except OSError:
            time.sleep(1)


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    model = nn.Linear(4, 1)
    dashboard = None
    for step in range(40):
        if rank == 0 and step == 10:
            print("starting the dashboard", flush=True)
            dashboard = start_dashboard()
        loss = model(torch.randn(8, 4)).pow(2).mean().detach()
        dist.all_reduce(loss)
        print(f"[rank {rank}] step {step} loss {loss.item():.4f}", flush=True)
    if dashboard:
        dashboard.close()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
