"""Saves a checkpoint when the scheduler announces preemption."""

import os
import signal
import tempfile
import threading
import time

import torch
import torch.distributed as dist

save_lock = threading.Lock()
state = {"step": 0}
folder = tempfile.mkdtemp()


def save(name):
    with save_lock:
        time.sleep(0.25)
        torch.save(state, os.path.join(folder, name))


def on_preempt(signum, frame):
    print("preemption announced, saving")
    save("preempt.pt")


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    signal.signal(signal.SIGUSR1, on_preempt)
    w = torch.zeros(128)
    for step in range(500):
        g = torch.randn(128)
        dist.all_reduce(g)
        w -= 0.1 * g
        state.update(step=step, w=w)
        if rank == 2 and step >= 20 and step % 5 == 0:
            # the cluster's daemon sends the signal
            threading.Timer(0.1, os.kill, (os.getpid(), signal.SIGUSR1)).start()
        if step % 5 == 0:
            save("last.pt")
            print(f"rank {rank} saved step {step}")
        time.sleep(0.1)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
