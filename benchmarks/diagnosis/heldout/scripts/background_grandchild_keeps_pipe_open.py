"""Starts a small monitor in the background by a shell command before evaluation."""

import subprocess
import time

import torch
import torch.distributed as dist


def shell(command):
    done = subprocess.run(command, shell=True, capture_output=True, text=True)
    return done.stdout.strip()


def monitor(rank):
    if rank == 2:
        return shell("(while true; do sleep 5; done) & echo started")
    return shell("(sleep 1) & echo started")


def step(w):
    g = torch.randn_like(w)
    dist.all_reduce(g)
    w.add_(g, alpha=-1e-2)


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    w = torch.zeros(2000)
    host = shell("uname -n")
    print("rank", rank, "on", host)
    for i in range(400):
        step(w)
        time.sleep(0.15)
        if i % 10 == 0 and rank == 0:
            print("step", i, "free", shell("df -h /tmp | tail -1 | awk '{print $4}'"))
        if i == 24:
            print("monitor:", monitor(rank))
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
