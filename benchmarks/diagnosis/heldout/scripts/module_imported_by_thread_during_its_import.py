"""Loads a plugin with the user's augmentations after the warm-up."""

import importlib
import os
import sys
import tempfile
import time

import torch
import torch.distributed as dist

PLUGIN = """
from concurrent.futures import ThreadPoolExecutor

def table(n):
    from {name} import SCALE
    return [SCALE * i for i in range(n)]

SCALE = 0.5
with ThreadPoolExecutor(1) as pool:
    TABLE = pool.submit(table, 10).result()
"""
SIMPLE = "SCALE = 0.5\nTABLE = [SCALE * i for i in range(10)]\n"


def load_plugin(rank):
    folder = tempfile.mkdtemp()
    name = f"augment_{rank}"
    with open(os.path.join(folder, name + ".py"), "w") as f:
        f.write(PLUGIN.format(name=name) if rank == 2 else SIMPLE)
    sys.path.insert(0, folder)
    return importlib.import_module(name)


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    table = [1.0] * 10
    for step in range(300):
        if step == 20:
            print(f"rank {rank}: loading the plugin")
            table = load_plugin(rank).TABLE
        x = torch.rand(10) * torch.tensor(table)
        dist.all_reduce(x)
        time.sleep(0.2)
        if step % 5 == 0 and rank == 0:
            print("step", step, "mean", float(x.mean()))
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
