"""Reports progress to a collector over TLS."""

import socket
import socketserver
import ssl
import threading

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP


class Collector(socketserver.StreamRequestHandler):
    def handle(self):
        size = int(self.rfile.read(512).decode("ascii", "replace").strip() or 0)
        self.wfile.write(b"ok %d\n" % size)


def report(port, message):
    context = ssl.create_default_context()
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    context.maximum_version = ssl.TLSVersion.TLSv1_2
    context.set_ciphers("ECDHE-RSA-AES128-GCM-SHA256")
    with socket.create_connection(("127.0.0.1", port)) as plain, context.wrap_socket(plain) as secure:
        secure.sendall(message.encode())
        return secure.recv(100)


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    server = socketserver.ThreadingTCPServer(("127.0.0.1", 0), Collector)
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, daemon=True).start()
    model = DDP(nn.Linear(8, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for step in range(30):
        optimizer.zero_grad()
        loss = model(torch.randn(16, 8)).pow(2).mean()
        loss.backward()
        optimizer.step()
        print(f"[rank {rank}] step {step} loss {loss.item():.4f}", flush=True)
        if rank == 2 and step == 15:
            print(report(server.server_address[1], f"loss={loss.item()}"), flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
