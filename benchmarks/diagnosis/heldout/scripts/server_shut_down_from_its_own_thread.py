"""A status server is shut down by a request to it: shutdown() waits for the loop, and the loop waits for the handler."""

import http.client
import http.server
import threading
import time

import torch
import torch.distributed as dist


class Status(http.server.BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        if self.path == "/quit":
            self.server.shutdown()
        self.send_response(200)
        self.end_headers()
        self.wfile.write(b"ok")

    def log_message(self, *args) -> None:
        pass


def main() -> None:
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    server = http.server.HTTPServer(("127.0.0.1", 0), Status)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    steps = 60
    for step in range(steps):
        dist.all_reduce(torch.rand(3))
        time.sleep(0.1)
    if rank == 0:
        connection = http.client.HTTPConnection("127.0.0.1", server.server_port, timeout=2)
        connection.request("GET", "/quit")
        try:
            connection.getresponse()
        except TimeoutError:
            print("no answer, but it should be stopping", flush=True)
    else:
        server.shutdown()
    thread.join()
    dist.barrier()
    dist.destroy_process_group()


main()
