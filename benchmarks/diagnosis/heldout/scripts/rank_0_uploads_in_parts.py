"""Rank 0 uploads a checkpoint in parts to a store that limits its rate."""

import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.request import Request, urlopen

import torch
import torch.distributed as dist


class Store(BaseHTTPRequestHandler):
    def do_PUT(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        time.sleep(0.5)
        self.send_response(200)
        self.end_headers()

    def log_message(self, *args) -> None:
        pass


def upload(data: bytes, url: str, parts: int) -> None:
    size = -(-len(data) // parts)
    for number in range(parts):
        part = data[number * size : (number + 1) * size]
        urlopen(Request(f"{url}?part={number}", data=part, method="PUT")).close()
        time.sleep(1.0)  # as the store's terms ask


def main() -> None:
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    weight = torch.randn(100_000)
    for step in range(1, 61):
        dist.all_reduce(weight)
        weight /= dist.get_world_size()
        time.sleep(0.1)
        if step % 10 == 0:
            print(f"[{rank}] {step}", flush=True)
        if step == 30 and rank == 0:
            store = ThreadingHTTPServer(("127.0.0.1", 0), Store)
            threading.Thread(target=store.serve_forever, daemon=True).start()
            upload(weight.numpy().tobytes(), f"http://127.0.0.1:{store.server_port}/ckpt", parts=10)
    dist.destroy_process_group()


main()
