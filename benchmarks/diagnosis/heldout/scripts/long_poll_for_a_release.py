"""Rank 2 asks a registry for a new version of the data; each request is held for four seconds, and then says "none"."""

import threading
import time
from http.client import HTTPConnection
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import torch
import torch.distributed as dist


class Registry(BaseHTTPRequestHandler):
    asked = 0

    def do_GET(self) -> None:
        Registry.asked += 1
        time.sleep(4)
        self.send_response(200 if Registry.asked > 3 else 304)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *args: object) -> None:
        pass


def await_release(port: int) -> None:
    while True:
        connection = HTTPConnection("127.0.0.1", port, timeout=30)
        connection.request("GET", "/data?wait=4")
        if connection.getresponse().status == 200:
            return
        connection.close()


dist.init_process_group("gloo")
rank = dist.get_rank()
registry = ThreadingHTTPServer(("127.0.0.1", 0), Registry)
threading.Thread(target=registry.serve_forever, daemon=True).start()
for step in range(50):
    if rank == 2 and step == 35:
        await_release(registry.server_port)
    dist.all_reduce(torch.ones(2, 2))
    time.sleep(0.1)
    if rank == 0 and step % 7 == 0:
        print("step", step, flush=True)
dist.destroy_process_group()
