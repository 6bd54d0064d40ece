"""Rank 0 has its samples judged by a service, a few at a time, and each judgement takes seconds."""

import threading
import time
import urllib.request
from concurrent.futures import ThreadPoolExecutor, as_completed
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import torch
import torch.distributed as dist


class Judge(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        time.sleep(3.5)
        self.send_response(200)
        self.end_headers()
        self.wfile.write(b"0.75")

    def log_message(self, *args: object) -> None:
        pass


def judge(url: str) -> float:
    with urllib.request.urlopen(url, timeout=60) as answer:
        return float(answer.read())


def score(samples: int) -> float:
    server = ThreadingHTTPServer(("127.0.0.1", 0), Judge)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    with ThreadPoolExecutor(max_workers=2) as pool:
        asked = [pool.submit(judge, f"http://127.0.0.1:{server.server_port}/{number}") for number in range(samples)]
        return sum(future.result() for future in as_completed(asked)) / samples


dist.init_process_group("gloo")
for step in range(60):
    dist.all_reduce(torch.rand(4))
    time.sleep(0.08)
    if step % 15 == 0:
        print(dist.get_rank(), step, flush=True)
    if step == 40 and dist.get_rank() == 0:
        print("score", score(7), flush=True)
dist.destroy_process_group()
