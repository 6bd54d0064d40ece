"""A periodic alarm records usage in a bounded queue, whose reader stopped when its file was closed."""

import queue
import signal
import threading
import time

import torch
import torch.distributed as dist

samples: "queue.Queue[float]" = queue.Queue(maxsize=8)


def record(signum, frame) -> None:
    samples.put(time.process_time())


def drain(path: str) -> None:
    with open(path, "w") as file:
        for _ in range(10):  # enough for a test
            file.write(f"{samples.get()}\n")


def main() -> None:
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    if rank == 1:
        threading.Thread(target=drain, args=("/dev/null",), daemon=True).start()
        signal.signal(signal.SIGALRM, record)
        signal.setitimer(signal.ITIMER_REAL, 0.2, 0.2)
    for step in range(100_000):
        dist.all_reduce(torch.rand(8))
        time.sleep(0.05)
        if step % 20 == 0:
            print(rank, step, flush=True)


main()
