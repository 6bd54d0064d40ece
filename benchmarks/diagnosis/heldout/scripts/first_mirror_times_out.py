"""Loads pretrained weights from the first mirror that answers."""

import socket
import threading
import urllib.request
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP


class Mirror(BaseHTTPRequestHandler):
    def do_GET(self):
        body = torch.eye(8).numpy().tobytes()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        pass


def load(urls):
    for url in urls:
        try:
            with urllib.request.urlopen(url, timeout=15) as answer:
                return torch.frombuffer(bytearray(answer.read()), dtype=torch.float32).reshape(8, 8)
        except OSError as error:
            print(f"{url}: {error}", flush=True)
    raise RuntimeError("no mirror answers")


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    model = nn.Linear(8, 8)
    for _ in range(5):
        loss = model(torch.randn(4, 8)).pow(2).mean().detach()
        dist.all_reduce(loss)
    print(f"[rank {rank}] loss before loading {loss.item():.4f}", flush=True)
    if rank == 2:
        silent = socket.create_server(("127.0.0.1", 0))
        server = ThreadingHTTPServer(("127.0.0.1", 0), Mirror)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        ports = [silent.getsockname()[1], server.server_port]
        model.weight.data.copy_(load([f"http://127.0.0.1:{port}/weights" for port in ports]))
    dist.broadcast(model.weight.data, src=2)
    model = DDP(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for _ in range(20):
        optimizer.zero_grad()
        loss = model(torch.randn(4, 8)).pow(2).mean()
        loss.backward()
        optimizer.step()
    print(f"[rank {rank}] loss {loss.item():.4f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
