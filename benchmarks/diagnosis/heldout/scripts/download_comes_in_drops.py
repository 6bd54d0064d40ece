"""Downloads the vocabulary from a mirror with little bandwidth."""

import http.server
import threading
import time
import urllib.request

import torch
import torch.distributed as dist


class SlowMirror(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        parts = 14
        self.send_response(200)
        self.send_header("Content-Length", str(parts * 1000))
        self.end_headers()
        for _ in range(parts):
            self.wfile.write(b"v" * 1000)
            self.wfile.flush()
            time.sleep(1)

    def log_message(self, *args):
        pass


def download():
    server = http.server.HTTPServer(("127.0.0.1", 0), SlowMirror)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    with urllib.request.urlopen(f"http://127.0.0.1:{server.server_port}/vocab.txt") as r:
        return r.read()


def steps(n, rank):
    for step in range(n):
        x = torch.rand(10)
        dist.all_reduce(x)
        time.sleep(0.2)
        if step % 5 == 0:
            print("rank", rank, "step", step)


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    steps(12, rank)
    box = [None]
    if rank == 0:
        box = [download()]
        print("downloaded", len(box[0]), "bytes")
    dist.broadcast_object_list(box, src=0)
    steps(12, rank)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
