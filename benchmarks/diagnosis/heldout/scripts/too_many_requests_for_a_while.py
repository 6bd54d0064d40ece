"""A server answers 429 with Retry-After twice, and urllib3 sleeps as it is told, before it gets its answer."""

import http.server
import threading
import time

import torch
import torch.distributed as dist
import urllib3


class Limited(http.server.BaseHTTPRequestHandler):
    asked = 0

    def do_GET(self) -> None:
        Limited.asked += 1
        busy = Limited.asked in (4, 5)
        self.send_response(429 if busy else 200)
        if busy:
            self.send_header("Retry-After", "9")
        self.send_header("Content-Length", "2")
        self.end_headers()
        self.wfile.write(b"ok")

    def log_message(self, *args) -> None:
        pass


def main() -> None:
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Limited)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    pool = urllib3.PoolManager(retries=urllib3.Retry(6, status_forcelist=[429], backoff_factor=0.5))
    for epoch in range(5):
        if rank == 1:
            pool.request("GET", f"http://127.0.0.1:{server.server_port}/manifest/{epoch}")
        for _ in range(20):
            dist.all_reduce(torch.rand(4))
            time.sleep(0.03)
        print(f"{rank}: epoch {epoch}", flush=True)
    server.shutdown()
    dist.destroy_process_group()


main()
