"""The tokenizer runs as a child, which is stopped as soon as it wants to read from the terminal."""

import subprocess
import sys

import torch
import torch.distributed as dist

TOKENIZER = """
import os, signal, sys
for number, line in enumerate(sys.stdin):
    if number == 30:
        os.kill(os.getpid(), signal.SIGSTOP)  # tty input
    print(len(line.split()), flush=True)
"""


def main() -> None:
    dist.init_process_group("gloo")
    child = subprocess.Popen(
        [sys.executable, "-c", TOKENIZER],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        bufsize=1,
    )
    for step in range(10_000):
        length = 3
        if dist.get_rank() == 1:
            child.stdin.write("a few words\n")
            length = int(child.stdout.readline())
        dist.all_reduce(torch.full((4,), float(length)))


main()
