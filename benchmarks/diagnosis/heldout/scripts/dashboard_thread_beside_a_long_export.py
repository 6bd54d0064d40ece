"""A thread serves a dashboard to nobody while its rank writes a long table; the server is idle by design."""

import csv
import os
import threading
import time
from http.server import HTTPServer, SimpleHTTPRequestHandler

import torch
import torch.distributed as dist


def export() -> None:
    until, row = time.monotonic() + 15, 0
    with open(os.devnull, "w") as sink:
        writer = csv.writer(sink)
        while time.monotonic() < until:
            writer.writerow([row, row / 3, str(row)])
            row += 1


def main() -> None:
    dist.init_process_group("gloo")
    server = HTTPServer(("127.0.0.1", 0), SimpleHTTPRequestHandler)
    threading.Thread(target=server.serve_forever, name="dashboard", daemon=True).start()
    for step in range(10):
        dist.all_reduce(torch.rand(16))
    if dist.get_rank() == 2:
        export()
    dist.barrier()
    dist.destroy_process_group()


main()
