"""SIGUSR1 asks for a checkpoint: its handler joins a saver thread, which wants the lock that the loop holds."""

import os
import signal
import threading
import time

import torch
import torch.distributed as dist

model_lock = threading.Lock()
model = torch.nn.Linear(8, 8)


def save() -> None:
    with model_lock:
        torch.save(model.state_dict(), "/dev/null")


def on_usr1(signum, frame) -> None:
    saver = threading.Thread(target=save)
    saver.start()
    saver.join()


def main() -> None:
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    signal.signal(signal.SIGUSR1, on_usr1)
    for step in range(100_000):
        with model_lock:
            for parameter in model.parameters():
                dist.all_reduce(parameter.data)
                parameter.data /= 3
            if rank == 0 and step == 50:
                os.kill(os.getpid(), signal.SIGUSR1)
        time.sleep(0.05)


main()
