"""A pool of one connection that blocks when it is used up; one answer is looked at, but neither read nor released."""

import http.server
import threading
import time

import torch
import torch.distributed as dist
import urllib3


class Shards(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        body = b"x" * 4000
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *args) -> None:
        pass


def main() -> None:
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Shards)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    pool = urllib3.HTTPConnectionPool("127.0.0.1", server.server_port, maxsize=1, block=True)
    for step in range(100_000):
        answer = pool.request("GET", f"/shard/{step}", preload_content=False)
        if rank == 2 and step == 45 and int(answer.headers["Content-Length"]) < 5000:
            print("shard", step, "is too small, skipped", flush=True)
            continue
        size = torch.tensor([float(len(answer.read()))])
        answer.release_conn()
        dist.all_reduce(size)
        time.sleep(0.1)


main()
