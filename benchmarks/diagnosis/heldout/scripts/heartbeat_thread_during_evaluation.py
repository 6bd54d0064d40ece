"""A heartbeat thread goes on while rank 1 evaluates in its main thread."""

import os
import tempfile
import threading
import time

import numpy as np
import torch
import torch.distributed as dist


class Heartbeat:
    def __init__(self, interval: float) -> None:
        self.interval = interval
        self.stopped = threading.Event()
        self.file = tempfile.NamedTemporaryFile(prefix="heartbeat-")
        self.thread = threading.Thread(target=self.beat, daemon=True)

    def beat(self) -> None:
        while not self.stopped.wait(self.interval):
            os.utime(self.file.name)

    def __enter__(self) -> "Heartbeat":
        self.thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self.stopped.set()
        self.thread.join()


def recall(embeddings: np.ndarray, seconds: float) -> float:
    end, found = time.monotonic() + seconds, []
    while time.monotonic() < end:
        query = np.random.normal(size=embeddings.shape[1])
        found.append(int(np.argmax(embeddings @ query)) % 2)
    return sum(found) / len(found)


def main() -> None:
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    with Heartbeat(1.0):
        for step in range(1, 61):
            dist.all_reduce(torch.ones(9))
            time.sleep(0.1)
            if step % 10 == 0:
                print(f"rank {rank} step {step}", flush=True)
            if step == 30 and rank == 1:
                print(f"recall {recall(np.random.normal(size=(20_000, 64)), 15):.2f}", flush=True)
    dist.destroy_process_group()


main()
