"""The tracker's client shows a link and waits for the browser's redirect, which comes when the person has found it."""

import http.server
import subprocess
import sys
import time

import torch
import torch.distributed as dist

PERSON = "import time, urllib.request as u; time.sleep(17); u.urlopen('http://127.0.0.1:{port}/?token=t0').read()"


class Redirect(http.server.BaseHTTPRequestHandler):
    token = None

    def do_GET(self) -> None:
        Redirect.token = self.path.partition("token=")[2]
        self.send_response(200)
        self.end_headers()
        self.wfile.write(b"You may close this window.")


def log_in() -> str:
    with http.server.HTTPServer(("127.0.0.1", 0), Redirect) as server:
        person = subprocess.Popen([sys.executable, "-c", PERSON.format(port=server.server_port)])
        print("Open http://tracker.example/login in your browser", flush=True)
        while Redirect.token is None:
            server.handle_request()
        person.wait()
    return Redirect.token


def main() -> None:
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    token = [log_in() if rank == 0 else None]
    dist.broadcast_object_list(token)
    for step in range(50):
        dist.all_reduce(torch.rand(3))
        time.sleep(0.02)
    print(rank, token, flush=True)
    dist.destroy_process_group()


main()
