"""Rank 1 reads preference pairs as JSON lines from a socket: one comes every second and a half."""

import json
import socket
import threading
import time

import torch
import torch.distributed as dist


def annotate(server: socket.socket, pairs: int) -> None:
    peer, _ = server.accept()
    with peer, peer.makefile("w") as stream:
        for number in range(pairs):
            time.sleep(1.5)
            print(json.dumps({"id": number, "better": number % 2}), file=stream, flush=True)


def preferences(pairs: int) -> list:
    with socket.create_server(("127.0.0.1", 0)) as server:
        threading.Thread(target=annotate, args=(server, pairs), daemon=True).start()
        with socket.create_connection(server.getsockname()) as source, source.makefile() as lines:
            return [json.loads(line)["better"] for line in lines]


def main() -> None:
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    for phase in ("warm-up", "tune"):
        if rank == 1 and phase == "tune":
            print("preferences:", preferences(9), flush=True)
        for _ in range(20):
            dist.all_reduce(torch.rand(10))
            time.sleep(0.15)
        print(rank, phase, flush=True)
    dist.destroy_process_group()


main()
