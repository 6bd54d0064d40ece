"""One rank polls a labelling service for a job that stays pending."""

import json
import threading
import time
import urllib.request
from http.server import BaseHTTPRequestHandler, HTTPServer

import torch
import torch.distributed as dist


class Labels(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.send_response(200)
        self.end_headers()
        self.wfile.write(json.dumps({"state": "PENDING"}).encode())

    def log_message(self, *args) -> None:
        pass


def wait_for_labels(port: int) -> None:
    while True:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/jobs/7") as answer:
            if json.load(answer)["state"] == "DONE":
                return
        time.sleep(0.5)


def main() -> None:
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    server = HTTPServer(("127.0.0.1", 0), Labels)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    for epoch in range(100):
        if rank == 2 and epoch == 3:
            wait_for_labels(server.server_port)
        for _ in range(10):
            loss = torch.rand(1)
            dist.all_reduce(loss)
            time.sleep(0.1)
        print(f"rank {rank}: epoch {epoch} loss {loss.item():.3f}", flush=True)


main()
