"""A line protocol over TCP: the tracker sent half of its reply and no newline, and `readline` waits for the rest."""

import socket
import threading
import time

import torch
import torch.distributed as dist


def track(server: socket.socket) -> None:
    peer, _ = server.accept()
    for number, line in enumerate(peer.makefile("r")):
        reply = f"ok {line.strip()}"
        peer.sendall(reply[:2].encode() if number == 7 else f"{reply}\n".encode())


class Tracker:
    def __init__(self) -> None:
        server = socket.create_server(("localhost", 0))
        threading.Thread(target=track, args=(server,), daemon=True).start()
        self.stream = socket.create_connection(server.getsockname()[:2]).makefile("rw", newline="\n")

    def report(self, **metrics: float) -> str:
        print(*(f"{name}={value:.3f}" for name, value in metrics.items()), file=self.stream, flush=True)
        return self.stream.readline()


def main() -> None:
    dist.init_process_group("gloo")
    tracker = Tracker() if dist.get_rank() == 2 else None
    for step in range(1_000_000):
        loss = torch.rand(())
        dist.all_reduce(loss)
        time.sleep(0.1)
        if step % 5 == 0:
            if tracker:
                tracker.report(loss=loss.item(), step=step)
            else:
                print("step", step, flush=True)


main()
