"""A rank's little HTTP service has one thread; its handler asks the same service for a part of the answer."""

import threading
import time
from http.server import BaseHTTPRequestHandler, HTTPServer
from urllib.request import urlopen

import torch
import torch.distributed as dist

METRICS = {"step": 0}


class Service(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        text = str(METRICS)
        if self.path == "/summary" and METRICS["step"] >= 30:
            with urlopen(f"http://127.0.0.1:{self.server.server_port}/metrics") as answer:
                text = answer.read().decode().upper()
        self.send_response(200)
        self.end_headers()
        self.wfile.write(text.encode())

    def log_message(self, *args: object) -> None:
        pass


def main() -> None:
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    service = HTTPServer(("127.0.0.1", 0), Service)
    threading.Thread(target=service.serve_forever, daemon=True).start()
    for step in range(1_000_000):
        dist.all_reduce(torch.rand(2, 2))
        METRICS["step"] = step
        time.sleep(0.1)
        if rank == 2 and step % 10 == 0:
            with urlopen(f"http://127.0.0.1:{service.server_port}/summary") as answer:
                print(answer.read().decode(), flush=True)


main()
