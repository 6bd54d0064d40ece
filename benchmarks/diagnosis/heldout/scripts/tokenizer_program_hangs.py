"""`communicate` with an external tokenizer that waits for its own licence server."""

import subprocess
import sys
import time

import torch
import torch.distributed as dist

TOKENIZER = """
import socket, sys
text = sys.stdin.read()
if len(text) > 400:
    server = socket.create_server(("127.0.0.1", 0))
    socket.create_connection(server.getsockname()).recv(1)
print(len(text.split()))
"""


def count_tokens(text: str) -> int:
    done = subprocess.run([sys.executable, "-c", TOKENIZER], input=text, capture_output=True, text=True, check=True)
    return int(done.stdout)


def main() -> None:
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    for epoch in range(1, 1_000):
        tokens = count_tokens("word " * (epoch * 30 if rank == 2 else 10))
        for _ in range(15):
            total = torch.tensor([float(tokens)])
            dist.all_reduce(total)
            time.sleep(0.1)
        if rank == 0:
            print(f"epoch {epoch}: {total.item():.0f} tokens", flush=True)


main()
