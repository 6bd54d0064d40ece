"""A rank's own artifact server announces the length before compression, and keeps the connection open."""

import gzip
import http.client
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import torch
import torch.distributed as dist


class Artifacts(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        body = b"0" * 100_000
        packed = gzip.compress(body) if self.path.endswith(".gz") else body
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(packed)

    def log_message(self, *args) -> None:
        pass


def main() -> None:
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    server = ThreadingHTTPServer(("127.0.0.1", 0), Artifacts)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    for step in range(100_000):
        dist.all_reduce(torch.rand(3))
        time.sleep(0.1)
        if rank == 0 and step in (20, 40):
            client = http.client.HTTPConnection("127.0.0.1", server.server_port)
            client.request("GET", "/weights" if step == 20 else "/weights.gz")
            print(len(client.getresponse().read()), flush=True)


main()
