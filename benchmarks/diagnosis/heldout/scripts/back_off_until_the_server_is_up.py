"""Rank 2's tracker is restarting: 503 three times, with a back-off that doubles, then 200."""

import threading
import time
import urllib.error
import urllib.request
from http.server import BaseHTTPRequestHandler, HTTPServer

import torch
import torch.distributed as dist


class Restarting(BaseHTTPRequestHandler):
    calls = 0

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        Restarting.calls += 1
        self.send_response(503 if Restarting.calls < 4 else 200)
        self.end_headers()

    def log_message(self, *args) -> None:
        pass


def post(url: str, data: bytes, tries: int = 6) -> None:
    for attempt in range(tries):
        try:
            urllib.request.urlopen(url, data=data, timeout=5).close()
            return
        except urllib.error.HTTPError as error:
            print(f"tracker: {error}, trying again in {2 ** (attempt + 1)} s", flush=True)
            time.sleep(2 ** (attempt + 1))
    raise ConnectionError("the tracker does not answer")


def main() -> None:
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    for step in range(1, 61):
        loss = torch.rand(1)
        dist.all_reduce(loss)
        time.sleep(0.1)
        if step % 10 == 0:
            print(f"rank {rank} step {step}", flush=True)
        if step == 30 and rank == 2:
            tracker = HTTPServer(("127.0.0.1", 0), Restarting)
            threading.Thread(target=tracker.serve_forever, daemon=True).start()
            post(f"http://127.0.0.1:{tracker.server_port}/log", str(loss.item()).encode())
    dist.destroy_process_group()


main()
