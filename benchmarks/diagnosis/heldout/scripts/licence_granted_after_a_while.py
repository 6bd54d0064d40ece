"""Takes a licence for the proprietary decoder from a licence server before the second phase."""

import contextlib
import socket
import subprocess
import sys

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

SERVER = """
import socket, time
with socket.create_server(("127.0.0.1", 0)) as server:
    print(server.getsockname()[1], flush=True)
    connection, _ = server.accept()
    connection.recv(100)
    time.sleep(14)  # all licences are in use
    connection.sendall(b"granted\\n")
    connection.recv(100)
"""


@contextlib.contextmanager
def licence(port):
    with socket.create_connection(("127.0.0.1", port)) as connection:
        connection.sendall(b"decoder\n")
        answer = connection.recv(100).decode().strip()
        yield answer


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    model = DDP(nn.Linear(8, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)

    def phase(name):
        for _ in range(20):
            optimizer.zero_grad()
            loss = model(torch.randn(16, 8)).pow(2).mean()
            loss.backward()
            optimizer.step()
        print(f"[rank {rank}] {name} loss {loss.item():.4f}", flush=True)

    phase("first phase")
    if rank == 2:
        server = subprocess.Popen([sys.executable, "-c", SERVER], stdout=subprocess.PIPE, text=True)
        with licence(int(server.stdout.readline())) as answer:
            print(f"[rank {rank}] licence {answer}", flush=True)
            phase("second phase")
        server.wait()
    else:
        phase("second phase")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
