"""Samples come over HTTP in DataLoader processes; the object store stops answering."""

import threading
import time
import urllib.request
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import torch
import torch.distributed as dist
from torch.utils.data import DataLoader, IterableDataset


class Store(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        number = int(self.path.rsplit("/", 1)[1])
        if number >= 140 and "bucket-1" in self.path:
            threading.Event().wait()
        self.send_response(200)
        self.end_headers()
        self.wfile.write(str(number % 10).encode())

    def log_message(self, *args) -> None:
        pass


class RemoteSamples(IterableDataset):
    def __init__(self, url: str) -> None:
        self.url = url

    def __iter__(self):
        for number in range(1_000_000):
            with urllib.request.urlopen(f"{self.url}/{number}") as answer:
                yield torch.tensor([float(answer.read())])


def main() -> None:
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    store = ThreadingHTTPServer(("127.0.0.1", 0), Store)
    threading.Thread(target=store.serve_forever, daemon=True).start()
    samples = RemoteSamples(f"http://127.0.0.1:{store.server_port}/bucket-{rank}")
    for step, batch in enumerate(DataLoader(samples, batch_size=4, num_workers=1)):
        mean = batch.mean()
        dist.all_reduce(mean)
        time.sleep(0.1)
        if rank == 0 and step % 10 == 0:
            print("step", step, flush=True)


main()
