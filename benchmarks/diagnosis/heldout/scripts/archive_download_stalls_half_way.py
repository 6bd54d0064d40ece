"""Fetches an extra archive of training data before the second phase."""

import os
import socketserver
import threading
import time
import urllib.request
from http.server import BaseHTTPRequestHandler

import torch
import torch.distributed as dist
from torch import nn


class Mirror(BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200)
        self.send_header("Content-Length", str(1 << 22))
        self.end_headers()
        self.wfile.write(os.urandom(1 << 20))
        self.wfile.flush()
        time.sleep(86_400)

    def log_message(self, *_):
        pass


def fetch(url):
    data = bytearray()
    with urllib.request.urlopen(url) as answer:
        while block := answer.read(65_536):
            data += block
    return bytes(data)


def train(model, steps, rank):
    for step in range(steps):
        loss = model(torch.randn(8, 4)).pow(2).mean().detach()
        dist.all_reduce(loss)
        print(f"[rank {rank}] step {step} loss {loss.item():.4f}", flush=True)


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    model = nn.Linear(4, 1)
    train(model, 10, rank)
    if rank == 1:
        server = socketserver.ThreadingTCPServer(("127.0.0.1", 0), Mirror)
        server.daemon_threads = True
        threading.Thread(target=server.serve_forever, daemon=True).start()
        print("downloading the second archive", flush=True)
        print(len(fetch(f"http://127.0.0.1:{server.server_address[1]}/extra.tar")), "bytes", flush=True)
    dist.barrier()
    train(model, 10, rank)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
