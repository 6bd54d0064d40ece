"""Rank 0 serves its metrics page for ever in the thread that trains."""

import time
from http.server import BaseHTTPRequestHandler, HTTPServer

import torch
import torch.distributed as dist


class Page(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.send_response(200)
        self.end_headers()
        self.wfile.write(b"loss 0.1\n")


def serve_metrics() -> None:
    server = HTTPServer(("127.0.0.1", 0), Page)
    server.serve_forever()


def main() -> None:
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    for step in range(100_000):
        dist.all_reduce(torch.rand(3))
        time.sleep(0.1)
        if rank == 0 and step == 40:
            serve_metrics()


main()
