"""Posts metrics to a tracking server after every few steps."""

import http.server
import json
import threading
import time
import urllib.request

import torch
import torch.distributed as dist


class Handler(http.server.BaseHTTPRequestHandler):
    count = 0

    def do_POST(self):
        body = self.rfile.read(int(self.headers["Content-Length"]))
        Handler.count += 1
        if Handler.count > 4:
            threading.Event().wait()
        self.send_response(200)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *args):
        pass


def start_server():
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    return f"http://127.0.0.1:{server.server_port}/log"


def post(url, record):
    req = urllib.request.Request(url, data=json.dumps(record).encode(), method="POST")
    with urllib.request.urlopen(req) as response:
        return json.load(response)


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    url = start_server() if rank == 0 else None
    x = torch.zeros(100)
    for step in range(300):
        g = torch.rand(100)
        dist.all_reduce(g)
        x += g
        time.sleep(0.2)
        if rank == 0 and step % 4 == 0:
            post(url, {"step": step, "x": float(x.mean())})
            print("logged step", step)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
