"""A logging handler posts records over HTTP; the receiver, a thread of the same rank, logs each request."""

import logging
import threading
import time
import urllib.request
from http.server import BaseHTTPRequestHandler, HTTPServer

import torch
import torch.distributed as dist

log = logging.getLogger("training")


class Receiver(BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        log.debug("record of %s", self.client_address)
        self.send_response(204)
        self.end_headers()

    def log_message(self, *args) -> None:
        pass


class Post(logging.Handler):
    def __init__(self, port: int) -> None:
        super().__init__()
        self.url = f"http://127.0.0.1:{port}/"

    def emit(self, record: logging.LogRecord) -> None:
        urllib.request.urlopen(self.url, data=self.format(record).encode()).read()


def main() -> None:
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    if rank == 1:
        server = HTTPServer(("127.0.0.1", 0), Receiver)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        log.addHandler(Post(server.server_port))
        log.setLevel(logging.INFO)
    for step in range(100_000):
        dist.all_reduce(torch.rand(5))
        time.sleep(0.1)
        if step == 30:
            log.setLevel(logging.DEBUG)
        if step % 10 == 0:
            log.info("step %d", step)


main()
