"""The reader of a record counts the padding of its own machine; the writer's header has none."""

import multiprocessing
import socket
import struct

import torch
import torch.distributed as dist


def send_records(sink: socket.socket) -> None:
    for number in range(1000):
        sink.sendall(struct.pack("<IQ", number, 4) + bytes(4))
        if sink.recv(1) != b"+":
            return


def read_record(source: socket.socket, layout: str) -> bytes:
    header = source.recv(struct.calcsize(layout), socket.MSG_WAITALL)
    _, length = struct.unpack(layout, header)
    body = source.recv(length, socket.MSG_WAITALL)
    source.sendall(b"+")
    return body


def main() -> None:
    dist.init_process_group("gloo")
    ours, theirs = socket.socketpair()
    multiprocessing.get_context("fork").Process(target=send_records, args=(theirs,), daemon=True).start()
    for step in range(900):
        read_record(ours, "IQQ" if dist.get_rank() == 2 and step == 11 else "<IQ")
        dist.all_reduce(torch.rand(16))


main()
