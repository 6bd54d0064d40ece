"""A rank asks a time server by datagram, without a limit; the datagram is dropped."""

import socket
import struct

import torch
import torch.distributed as dist


def ask_time(address: "tuple[str, int]") -> float:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asked:
        asked.sendto(b"\x1b" + 47 * b"\0", address)
        answer, _ = asked.recvfrom(1024)
    return struct.unpack("!12I", answer)[10] - 2208988800


def main() -> None:
    dist.init_process_group("gloo")
    silent = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    silent.bind(("127.0.0.1", 0))
    for step in range(10_000):
        if dist.get_rank() == 0 and step % 100 == 40:
            print("clock is off by", ask_time(silent.getsockname()))
        dist.all_reduce(torch.rand(16))


main()
