"""Rank 2 has a simulation run in a child, asks its pipe every half second, and counts how often it asked in vain."""

import multiprocessing
import time

import numpy as np
import torch
import torch.distributed as dist


def simulate(pipe, seconds: float) -> None:
    field, end = np.zeros((200, 200)), time.monotonic() + seconds
    field[100, 100] = 1.0
    while time.monotonic() < end:
        field = (np.roll(field, 1, 0) + np.roll(field, -1, 0) + np.roll(field, 1, 1) + np.roll(field, -1, 1)) / 4
    pipe.send(float(field.max()))


def run(seconds: float) -> tuple[float, int]:
    mine, theirs = multiprocessing.Pipe()
    child = multiprocessing.get_context("fork").Process(target=simulate, args=(theirs, seconds))
    child.start()
    in_vain = 0
    while not mine.poll(0.5):
        in_vain += 1
    peak = mine.recv()
    child.join()
    return peak, in_vain


dist.init_process_group("gloo")
for step in range(1, 51):
    dist.all_reduce(torch.randn(25))
    time.sleep(0.1)
    if step % 10 == 0:
        print(f"{dist.get_rank()}: step {step}", flush=True)
    if step == 35 and dist.get_rank() == 2:
        print("peak, polls in vain:", *run(12.0), flush=True)
dist.destroy_process_group()
