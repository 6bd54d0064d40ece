"""TensorBoard-like event writer: a bounded queue whose consumer thread died of a closed file."""

import queue
import tempfile
import threading
import time

import torch
import torch.distributed as dist


class EventWriter:
    def __init__(self, path: str) -> None:
        self.file = open(path, "w")
        self.events: queue.Queue[str] = queue.Queue(maxsize=20)
        threading.Thread(target=self._drain, daemon=True, name="event-writer").start()

    def _drain(self) -> None:
        while True:
            self.file.write(self.events.get() + "\n")
            self.file.flush()

    def scalar(self, name: str, step: int, value: float) -> None:
        self.events.put(f"{name} {step} {value}")

    def rotate(self) -> None:
        self.file.close()


def main() -> None:
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    writer = EventWriter(tempfile.mktemp(prefix="events-")) if rank == 0 else None
    parameters = torch.ones(100)
    for step in range(1_000_000):
        update = torch.randn(100) * 0.01
        dist.all_reduce(update, op=dist.ReduceOp.SUM)
        parameters += update
        time.sleep(0.1)
        if writer:
            writer.scalar("norm", step, parameters.norm().item())
            if step == 25:
                writer.rotate()
        if rank == 1 and step % 10 == 0:
            print("step", step, flush=True)


main()
