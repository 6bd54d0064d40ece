"""A client writes its request to a buffered file of the socket, and reads the answer without a flush."""

import socket
import threading

import torch
import torch.distributed as dist


def serve(server: socket.socket) -> None:
    connection, _ = server.accept()
    with connection.makefile("rwb") as stream:
        for line in stream:
            stream.write(line.upper())
            stream.flush()


def main() -> None:
    dist.init_process_group("gloo")
    server = socket.create_server(("127.0.0.1", 0))
    threading.Thread(target=serve, args=(server,), daemon=True).start()
    stream = socket.create_connection(server.getsockname()).makefile("rw")
    for step in range(10_000):
        if dist.get_rank() == 0:
            stream.write(f"lookup {step}\n")
            if step < 17:  # later on the debug line below it was removed
                stream.flush()
            stream.readline()
        dist.all_reduce(torch.rand(16))


main()
