"""A rank asks a slow service for forty embeddings, two at a time, and waits for all of them."""

import threading
import time
from concurrent.futures import ThreadPoolExecutor, as_completed
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import requests
import torch
import torch.distributed as dist


class Service(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        time.sleep(1)
        self.send_response(200)
        self.send_header("Content-Length", "2")
        self.end_headers()
        self.wfile.write(b"ok")

    def log_message(self, *_: object) -> None:
        pass


def main() -> None:
    dist.init_process_group("gloo")
    server = ThreadingHTTPServer(("127.0.0.1", 0), Service)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    address = f"http://127.0.0.1:{server.server_port}"
    for step in range(10):
        dist.all_reduce(torch.rand(16))
    if dist.get_rank() == 1:
        with ThreadPoolExecutor(2) as pool:
            asked = [pool.submit(requests.get, f"{address}/{number}", timeout=30) for number in range(40)]
            print(sum(each.result().ok for each in as_completed(asked)))
    dist.barrier()
    dist.destroy_process_group()


main()
