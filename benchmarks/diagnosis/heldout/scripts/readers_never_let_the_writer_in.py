"""A readers-writer lock whose reader raised before it signed off: the writer waits for the count to become zero."""

import threading
import time

import torch
from torch import distributed as dist


class SharedWeights:
    def __init__(self) -> None:
        self.readers = 0
        self.changed = threading.Condition()

    def read(self, index: int, table: list) -> float:
        with self.changed:
            self.readers += 1
        value = table[index]
        with self.changed:
            self.readers -= 1
            self.changed.notify_all()
        return value

    def write(self, table: list, value: float) -> None:
        with self.changed:
            self.changed.wait_for(lambda: self.readers == 0)
            table[:] = [value] * len(table)


dist.init_process_group("gloo")
shared, table = SharedWeights(), [0.0] * 30


def serve() -> None:
    for request in range(1_000):
        shared.read(request, table)
        time.sleep(0.1)


if dist.get_rank() == 1:
    threading.Thread(target=serve, name="serve", daemon=True).start()
for step in range(100_000):
    loss = torch.tensor(1.0 / (step + 1))
    dist.all_reduce(loss, op=dist.ReduceOp.MAX)
    shared.write(table, loss.item())
    if dist.get_rank() == 2:
        print(step, loss.item(), flush=True)
    time.sleep(0.12)
