"""Uploads the log in a background thread, and waits for it for a limited time when the training is over."""

import socket
import threading

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP


def upload(address, data):
    with socket.create_connection(address) as connection:
        connection.sendall(data)
        connection.recv(16)


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    listener = socket.create_server(("127.0.0.1", 0))
    model = DDP(nn.Linear(8, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    losses = []
    for step in range(60):
        optimizer.zero_grad()
        loss = model(torch.randn(16, 8)).pow(2).mean()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
        if step % 20 == 19:
            print(f"[rank {rank}] step {step} loss {loss.item():.4f}", flush=True)
    if rank == 0:
        data = ",".join(map(str, losses)).encode()
        uploader = threading.Thread(target=upload, args=(listener.getsockname(), data), daemon=True)
        uploader.start()
        uploader.join(timeout=16)
        if uploader.is_alive():
            print("the upload takes too long, the log stays on this machine", flush=True)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
