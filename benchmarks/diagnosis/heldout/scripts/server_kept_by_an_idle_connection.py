"""Rank 0's shard server serves one connection at a time; rank 1 keeps its connection open, and rank 2 is not served."""

import http.client
import http.server
import threading
import time

import torch
import torch.distributed as dist


class Shards(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        self.send_response(200)
        self.send_header("Content-Length", "4")
        self.end_headers()
        self.wfile.write(b"data")

    def log_message(self, *args) -> None:
        pass


def main() -> None:
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    port = [None]
    if rank == 0:
        server = http.server.HTTPServer(("127.0.0.1", 0), Shards)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        port[0] = server.server_port
    dist.broadcast_object_list(port)
    client = http.client.HTTPConnection("127.0.0.1", port[0])
    for step in range(10_000):
        turn = 1 if step < 40 else 2
        if rank == turn and step % 10 == 0:
            client.request("GET", f"/{step}")
            print(rank, client.getresponse().read(), flush=True)
        dist.all_reduce(torch.rand(3))
        time.sleep(0.1)


main()
