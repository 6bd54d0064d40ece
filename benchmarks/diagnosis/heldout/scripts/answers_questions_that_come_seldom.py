"""The first rank serves questions, of which one comes every nine seconds; the others wait for its broadcast by design."""

import socket
import subprocess
import sys

import torch
import torch.distributed as dist

PEOPLE = """
import socket, sys, time
for number in range(3):
    time.sleep(9)
    with socket.create_connection(("127.0.0.1", int(sys.argv[1]))) as asked:
        asked.sendall(b"what?" if number < 2 else b"quit")
        asked.recv(10)
"""


def main() -> None:
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    server = socket.create_server(("127.0.0.1", 0)) if rank == 0 else None
    people = subprocess.Popen([sys.executable, "-c", PEOPLE, str(server.getsockname()[1])]) if server else None
    question = [None]
    while question[0] != b"quit":
        if server:
            connection, _ = server.accept()
            question[0] = connection.recv(100)
        dist.broadcast_object_list(question, src=0)
        dist.all_reduce(torch.rand(16))
        if server:
            connection.sendall(b"because")
            connection.close()
    if people:
        people.wait()
    dist.destroy_process_group()


main()
