"""A feeder thread hands serialised batches to the training loop through a socket pair."""

import select
import socket
import struct
import threading

import numpy as np
import torch
import torch.distributed as dist
from torch import nn


class Feed:
    def __init__(self):
        self.reader, self.writer = socket.socketpair()
        self.reader.setblocking(False)
        self.poller = select.epoll()
        self.poller.register(self.reader, select.EPOLLIN | select.EPOLLET)
        self.buffer = b""

    def put(self, array):
        data = array.astype(np.float32).tobytes()
        self.writer.sendall(struct.pack("!I", len(data)) + data)

    def get(self):
        while len(self.buffer) < 4 or len(self.buffer) < 4 + struct.unpack("!I", self.buffer[:4])[0]:
            self.poller.poll()
            self.buffer += self.reader.recv(4096)
        (length,) = struct.unpack("!I", self.buffer[:4])
        data, self.buffer = self.buffer[4 : 4 + length], self.buffer[4 + length :]
        return torch.from_numpy(np.frombuffer(data, dtype=np.float32).copy()).reshape(-1, 8)


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    feed = Feed()
    model = nn.Linear(8, 1)
    for step in range(20):
        rows = 640 if rank == 2 and step == 8 else 16
        writer = threading.Thread(target=feed.put, args=(np.random.rand(rows, 8),), daemon=True)
        writer.start()
        writer.join()
        loss = model(feed.get()).pow(2).mean()
        model.zero_grad()
        loss.backward()
        for parameter in model.parameters():
            dist.all_reduce(parameter.grad)
        print(f"[rank {rank}] step {step} rows {rows} loss {loss.item():.4f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
