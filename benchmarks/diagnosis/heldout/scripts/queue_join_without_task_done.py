"""A small pool of augmentation threads; one path of the worker forgets `task_done`."""

import queue
import threading
import time

import torch
import torch.distributed as dist

tasks: "queue.Queue[torch.Tensor]" = queue.Queue()
results: list[torch.Tensor] = []


def augment() -> None:
    while True:
        image = tasks.get()
        if image.abs().max() > 1000:
            print("outlier skipped", flush=True)
            continue
        results.append(image.flip(0))
        tasks.task_done()


def load_batch(step: int, rank: int) -> torch.Tensor:
    results.clear()
    for number in range(4):
        image = torch.randn(8, 8)
        if rank == 2 and step == 35 and number == 3:
            image[0, 0] = 12_345.0
        tasks.put(image)
    tasks.join()
    return torch.stack(results)


if __name__ == "__main__":
    dist.init_process_group("gloo")
    for _ in range(2):
        threading.Thread(target=augment, daemon=True).start()
    total = torch.zeros(8, 8)
    for step in range(50_000):
        total = load_batch(step, dist.get_rank()).mean(0)
        dist.all_reduce(total)
        time.sleep(0.1)
        if dist.get_rank() == 0 and step % 10 == 0:
            print("step", step, flush=True)
