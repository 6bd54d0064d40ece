"""Rank 0 is told `Retry-After: 15` by an API, sleeps, and gets its answer."""

import threading
import time
import urllib.error
import urllib.request
from http.server import BaseHTTPRequestHandler, HTTPServer

import torch
import torch.distributed as dist


class Api(BaseHTTPRequestHandler):
    calls = 0

    def do_GET(self) -> None:
        Api.calls += 1
        self.send_response(429 if Api.calls == 1 else 200)
        self.send_header("Retry-After", "15")
        self.end_headers()

    def log_message(self, *args) -> None:
        pass


def call(url: str) -> int:
    while True:
        try:
            with urllib.request.urlopen(url, timeout=10) as answer:
                return answer.status
        except urllib.error.HTTPError as error:
            time.sleep(float(error.headers["Retry-After"]))


def main() -> None:
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    for step in range(1, 61):
        dist.all_reduce(torch.zeros(10))
        time.sleep(0.1)
        if step % 10 == 0:
            print(f"rank {rank} step {step}", flush=True)
        if rank == 0 and step == 35:
            api = HTTPServer(("127.0.0.1", 0), Api)
            threading.Thread(target=api.serve_forever, daemon=True).start()
            print("judge answered", call(f"http://127.0.0.1:{api.server_port}/score"), flush=True)
    dist.destroy_process_group()


main()
