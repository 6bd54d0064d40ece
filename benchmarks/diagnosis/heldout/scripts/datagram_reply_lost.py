"""A learning-rate service over UDP: one reply was lost, and nobody asks again."""

import socket
import threading
import time

import torch
import torch.distributed as dist


class Schedule:
    def __init__(self) -> None:
        self.server = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self.server.bind(("127.0.0.1", 0))
        self.client = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        threading.Thread(target=self.serve, daemon=True).start()

    def serve(self) -> None:
        while True:
            message, client = self.server.recvfrom(100)
            if int(message) != 42:
                self.server.sendto(str(0.1 / (1 + int(message))).encode(), client)

    def rate(self, step: int) -> float:
        self.client.sendto(str(step).encode(), self.server.getsockname())
        reply, _ = self.client.recvfrom(100)
        return float(reply)


def main() -> None:
    dist.init_process_group("gloo")
    schedule = Schedule() if dist.get_rank() == 2 else None
    weight = torch.zeros(10)
    for step in range(10_000):
        rate = torch.tensor([schedule.rate(step) if schedule else 0.0])
        dist.broadcast(rate, src=2)
        weight += rate * torch.randn(10)
        time.sleep(0.1)
        if dist.get_rank() == 0 and step % 10 == 0:
            print(f"step {step} lr {rate.item():.4f}", flush=True)


main()
