"""A worker is killed while it draws its progress bar; the bar's lock is shared by all processes."""

import multiprocessing
import os
import signal
import sys

import torch
import torch.distributed as dist
from tqdm import tqdm

fork = multiprocessing.get_context("fork")


class FragileStream:
    def write(self, text: str) -> None:
        if "5/10" in text:
            os.kill(os.getpid(), signal.SIGKILL)  # the limit of its memory

    def flush(self) -> None:
        pass


def convert() -> None:
    for _ in tqdm(range(10), file=FragileStream(), mininterval=0):
        pass


def main() -> None:
    dist.init_process_group("gloo")
    tqdm.set_lock(fork.RLock())
    for step in range(10_000):
        if dist.get_rank() == 1 and step == 10:
            child = fork.Process(target=convert)
            child.start()
            child.join()
        if step % 5 == 0:
            tqdm.write(f"step {step}", file=sys.stderr)
        dist.all_reduce(torch.rand(16))


main()
