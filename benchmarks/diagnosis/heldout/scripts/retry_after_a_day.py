"""A hub answers 429 with Retry-After: 86400, and the client obeys."""

import threading
import time
import urllib.error
import urllib.request
from http.server import BaseHTTPRequestHandler, HTTPServer

import torch
import torch.distributed as dist


class Hub(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.send_response(429)
        self.send_header("Retry-After", "86400")
        self.end_headers()

    def log_message(self, *args) -> None:
        pass


def download(url: str) -> bytes:
    while True:
        try:
            with urllib.request.urlopen(url, timeout=10) as answer:
                return answer.read()
        except urllib.error.HTTPError as error:
            if error.code != 429:
                raise
            time.sleep(float(error.headers["Retry-After"]))


def main() -> None:
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    state = torch.zeros(5)
    for epoch in range(1_000):
        if rank == 0 and epoch == 3:
            hub = HTTPServer(("127.0.0.1", 0), Hub)
            threading.Thread(target=hub.serve_forever, daemon=True).start()
            download(f"http://127.0.0.1:{hub.server_port}/tokenizer.json")
        dist.broadcast(state, src=0)
        for _ in range(12):
            dist.all_reduce(state)
            time.sleep(0.1)
        print(f"[rank {rank}] epoch {epoch}", flush=True)


main()
