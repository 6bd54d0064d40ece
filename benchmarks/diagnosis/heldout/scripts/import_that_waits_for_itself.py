"""A plugin that starts a thread while it is imported; the thread imports the plugin, too."""

import importlib
import sys
import tempfile
import time
from pathlib import Path

import torch
import torch.distributed as dist

PLUGIN = """
import threading

def _load_defaults():
    from metrics_plugin import names
    names.append("accuracy")

names = []
_loader = threading.Thread(target=_load_defaults)
_loader.start()
_loader.join()
"""


def evaluate() -> list[str]:
    folder = Path(tempfile.mkdtemp(prefix="plugins-"))
    (folder / "metrics_plugin.py").write_text(PLUGIN)
    sys.path.insert(0, str(folder))
    return importlib.import_module("metrics_plugin").names


def main() -> None:
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    loss = torch.ones(1)
    for step in range(1, 10_000):
        dist.all_reduce(loss)
        loss /= dist.get_world_size()
        time.sleep(0.1)
        if step % 40 == 0 and rank == 1:
            print(f"metrics: {evaluate()}", flush=True)
        if step % 10 == 0 and rank == 0:
            print(f"step {step}", flush=True)


main()
