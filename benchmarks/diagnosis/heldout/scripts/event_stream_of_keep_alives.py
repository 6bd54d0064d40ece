"""A server-sent event stream that only says that it is alive: the client skips comments, and waits for an event."""

import threading
import time
import urllib.request
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import torch
import torch.distributed as dist


class Events(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.end_headers()
        for beat in range(1 << 30):
            event = f"data: version {beat}\n\n" if beat < 20 else ": keep-alive\n\n"
            self.wfile.write(event.encode())
            self.wfile.flush()
            time.sleep(0.2)

    def log_message(self, *args: object) -> None:
        return


def next_event(stream) -> str:
    for line in stream:
        if line.startswith(b"data:"):
            return line[5:].decode().strip()
    raise ConnectionError("the stream has ended")


dist.init_process_group("gloo")
rank = dist.get_rank()
if rank == 1:
    server = ThreadingHTTPServer(("127.0.0.1", 0), Events)
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, daemon=True).start()
    stream = urllib.request.urlopen(f"http://127.0.0.1:{server.server_port}/policy")
for step in range(100_000):
    if rank == 1 and step % 2 == 0:
        next_event(stream)
    dist.all_reduce(torch.rand(16))
    time.sleep(0.1)
    if rank == 0 and step % 4 == 0:
        print("iteration", step, flush=True)
