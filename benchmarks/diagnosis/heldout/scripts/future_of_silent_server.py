"""Features are fetched by a thread pool; the feature service accepts connections and does not answer."""

import socket
import threading
import time
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import torch
import torch.distributed as dist


class Features(BaseHTTPRequestHandler):
    served = 0

    def do_GET(self) -> None:
        Features.served += 1
        if Features.served > 60:
            threading.Event().wait()
        body = b"0.25"
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *args) -> None:
        pass


def fetch(url: str) -> float:
    with urllib.request.urlopen(url) as answer:
        return float(answer.read())


def main() -> None:
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    if rank == 1:
        server = ThreadingHTTPServer(("127.0.0.1", 0), Features)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        url = f"http://127.0.0.1:{server.server_port}/features"
    socket.setdefaulttimeout(None)
    with ThreadPoolExecutor(max_workers=2) as pool:
        for step in range(10_000):
            features = torch.zeros(2)
            if rank == 1:
                futures = [pool.submit(fetch, url) for _ in range(2)]
                features = torch.tensor([future.result() for future in futures])
            dist.all_reduce(features)
            time.sleep(0.1)
            if rank == 0 and step % 10 == 0:
                print(f"step {step}: {features.tolist()}", flush=True)


main()
