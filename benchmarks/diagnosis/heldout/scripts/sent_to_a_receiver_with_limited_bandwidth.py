"""The first rank sends its checkpoint to a receiver that takes 400 KB in a second."""

import multiprocessing
import socket
import time

import torch
import torch.distributed as dist


def receive(source: socket.socket) -> None:
    while source.recv(40_000):
        time.sleep(0.1)


def main() -> None:
    dist.init_process_group("gloo")
    for step in range(10):
        dist.all_reduce(torch.rand(16))
    if dist.get_rank() == 0:
        ours, theirs = socket.socketpair()
        child = multiprocessing.get_context("fork").Process(target=receive, args=(theirs,))
        child.start()
        theirs.close()
        ours.sendall(bytes(6_000_000))
        ours.shutdown(socket.SHUT_WR)
        ours.close()
        child.join()
    dist.barrier()
    dist.destroy_process_group()


main()
