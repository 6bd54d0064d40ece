"""Uploads the checkpoint to an object store, part by part, and tries again when the store is busy."""

import threading
import time
import urllib.error
import urllib.request
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP


class Store(BaseHTTPRequestHandler):
    busy = 3

    def do_PUT(self):
        self.rfile.read(int(self.headers["Content-Length"]))
        if self.path.endswith("/2") and Store.busy > 0:
            Store.busy -= 1
            self.send_response(503)
        else:
            self.send_response(200)
        self.end_headers()

    def log_message(self, *_):
        pass


def upload(base, data, parts=4):
    size = -(-len(data) // parts)
    for number in range(parts):
        part = data[number * size : (number + 1) * size]
        for attempt in range(8):
            try:
                urllib.request.urlopen(urllib.request.Request(f"{base}/{number}", data=part, method="PUT"))
                break
            except urllib.error.HTTPError as error:
                if error.code != 503:
                    raise
                time.sleep(2 * 2**attempt)


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    model = DDP(nn.Linear(32, 32))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    server = None
    if rank == 0:
        server = ThreadingHTTPServer(("127.0.0.1", 0), Store)
        threading.Thread(target=server.serve_forever, daemon=True).start()
    for step in range(60):
        optimizer.zero_grad()
        loss = model(torch.randn(16, 32)).pow(2).mean()
        loss.backward()
        optimizer.step()
        if step % 20 == 19:
            print(f"[rank {rank}] step {step} loss {loss.item():.4f}", flush=True)
        if rank == 0 and step == 39:
            upload(f"http://127.0.0.1:{server.server_port}/checkpoint", model.module.weight.detach().numpy().tobytes())
            print("uploaded", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
