"""Tasks come from a broker that speaks a Redis-like protocol; the list is empty, and a pop with timeout 0 waits on."""

import socketserver
import threading
import time
from socket import create_connection

import torch
import torch.distributed as dist

TASKS = [f"task-{number}" for number in range(40, 0, -1)]
MORE = threading.Condition()


class Broker(socketserver.StreamRequestHandler):
    def handle(self) -> None:
        for line in self.rfile:
            command, _key, _timeout = line.split()
            assert command == b"BLPOP"
            with MORE:
                MORE.wait_for(lambda: TASKS)
                self.wfile.write(TASKS.pop().encode() + b"\r\n")


def pop(stream) -> str:
    stream.write(b"BLPOP queue 0\r\n")
    stream.flush()
    return stream.readline().decode().strip()


dist.init_process_group("gloo")
if dist.get_rank() == 2:
    broker = socketserver.ThreadingTCPServer(("127.0.0.1", 0), Broker)
    broker.daemon_threads = True
    threading.Thread(target=broker.serve_forever, daemon=True).start()
    stream = create_connection(broker.server_address).makefile("rwb")
while True:
    task = [pop(stream) if dist.get_rank() == 2 else None]
    dist.broadcast_object_list(task, src=2)
    if dist.get_rank() == 0:
        print("working on", task[0], flush=True)
    time.sleep(0.1)
    dist.all_reduce(torch.rand(10))
