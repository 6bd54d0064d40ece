"""Starts an inference service and tries to connect until it listens."""

import multiprocessing as mp
import os
import socket
import tempfile
import time

import torch
import torch.distributed as dist


def service(path, start_up):
    time.sleep(start_up)  # loads its model
    s = socket.socket(socket.AF_UNIX)
    s.bind(path)
    s.listen()
    while True:
        c, _ = s.accept()
        with c:
            c.sendall(c.recv(100).upper())


def connect(path):
    for _ in range(300):
        try:
            s = socket.socket(socket.AF_UNIX)
            s.connect(path)
            return s
        except OSError:
            s.close()
            time.sleep(0.2)
    raise TimeoutError("the service does not start")


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    path = os.path.join(tempfile.mkdtemp(), "service.sock")
    x = torch.zeros(4)
    for step in range(28):
        if step == 12 and rank == 0:
            mp.get_context("fork").Process(target=service, args=(path, 12), daemon=True).start()
        if step >= 12 and rank == 0:
            with connect(path) as s:
                s.sendall(b"some text")
                assert s.recv(100) == b"SOME TEXT"
        dist.all_reduce(x)
        time.sleep(0.2)
        if step % 4 == 0:
            print(f"rank {rank} step {step}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
