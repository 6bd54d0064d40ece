"""Uncaught exceptions start a post-mortem debugger, which reads a terminal at which nobody sits."""

import pdb
import sys
import time
import traceback

import torch
import torch.distributed as dist


def debug(kind, value, trace) -> None:
    traceback.print_exception(kind, value, trace)
    pdb.post_mortem(trace)


def main() -> None:
    sys.excepthook = debug
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    weights = {"layer": torch.rand(3)}
    for step in range(100_000):
        dist.all_reduce(weights["layer"])
        time.sleep(0.1)
        if rank == 1 and step == 40:
            del weights["layer"]


main()
