"""The token of the experiment tracker has run out; the client opens a login page and waits for the browser to come back."""

import http.server
import time
import urllib.parse

import torch
import torch.distributed as dist


class Redirect(http.server.BaseHTTPRequestHandler):
    token = None

    def do_GET(self) -> None:
        Redirect.token = urllib.parse.parse_qs(urllib.parse.urlparse(self.path).query).get("token")
        self.send_response(200)
        self.end_headers()
        self.wfile.write(b"You may close this window.")


def log_in() -> str:
    server = http.server.HTTPServer(("127.0.0.1", 0), Redirect)
    print(f"Open https://tracker.example/login?back=http://127.0.0.1:{server.server_port}/", flush=True)
    while Redirect.token is None:
        server.handle_request()
    return Redirect.token[0]


class Tracker:
    def __init__(self) -> None:
        self.token, self.until = "abc", time.monotonic() + 6

    def log(self, **values) -> None:
        if time.monotonic() > self.until:
            self.token = log_in()


def main() -> None:
    dist.init_process_group("gloo")
    tracker = Tracker() if dist.get_rank() == 0 else None
    for step in range(10_000):
        loss = torch.rand(1)
        dist.all_reduce(loss)
        if tracker:
            tracker.log(loss=loss.item())
        time.sleep(0.1)


main()
