"""A dispatcher thread answers requests with futures; one that it cannot read it drops, and its future stays open."""

import queue
import threading
import time
from concurrent.futures import Future
from datetime import timedelta

import torch
import torch.distributed as dist


class Dispatcher(threading.Thread):
    def __init__(self) -> None:
        super().__init__(daemon=True)
        self.requests: queue.SimpleQueue = queue.SimpleQueue()

    def ask(self, *request: object) -> Future:
        answer: Future = Future()
        self.requests.put((request, answer))
        return answer

    def run(self) -> None:
        while True:
            request, answer = self.requests.get()
            match request:
                case ("temperature", int(step)):
                    answer.set_result(1.0 / (1 + step))
                case ("reset",):
                    answer.set_result(1.0)
                case _:
                    continue


dist.init_process_group("gloo", timeout=timedelta(minutes=10))
rank, dispatcher = dist.get_rank(), Dispatcher()
dispatcher.start()
for step in range(99_999):
    position = step / 2 if rank == 2 and step == 40 else step
    temperature = torch.tensor(dispatcher.ask("temperature", position).result())
    dist.all_reduce(temperature)
    if rank == 1 and not step % 8:
        print(step, temperature, flush=True)
    time.sleep(0.1)
