"""Reads each part from an object store that is overloaded for some time."""

import http.server
import threading
import time
import urllib.error
import urllib.request

import torch
import torch.distributed as dist

overloaded = {"from": None}


class Store(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        since = overloaded["from"]
        if since is not None and time.time() - since < 11:
            self.send_error(503)
            return
        self.send_response(200)
        self.end_headers()
        self.wfile.write(bytes(range(200)))

    def log_message(self, *args):
        pass


def get(port, name):
    for attempt in range(60):
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/{name}") as r:
                return r.read()
        except urllib.error.HTTPError:
            time.sleep(min(0.5 * 1.5**attempt, 4))
    raise RuntimeError("the object store does not work")


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Store)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    for part in range(16):
        if rank == 2 and part == 7:
            overloaded["from"] = time.time()
        data = torch.frombuffer(bytearray(get(server.server_port, f"part{part}")), dtype=torch.uint8)
        mean = data.float().mean().reshape(1)
        dist.all_reduce(mean)
        time.sleep(0.3)
        if part % 3 == 0:
            print(f"rank {rank} part {part} {mean.item() / 3:.2f}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
