"""A heavy package is imported on first use, on rank 0: it builds its tables while it is imported."""

import importlib
import sys
import tempfile
import time
from pathlib import Path

import torch
import torch.distributed as dist

PACKAGE = """
import time
_end = time.monotonic() + 14
TABLE = {}
while time.monotonic() < _end:
    _n = len(TABLE) % 50_000
    TABLE[_n, time.monotonic()] = [_n * k for k in range(20)]
    if len(TABLE) > 50_000:
        TABLE.clear()
"""


def metric(values: torch.Tensor) -> float:
    folder = Path(tempfile.mkdtemp(prefix="site-"))
    (folder / "heavy_metrics.py").write_text(PACKAGE)
    sys.path.append(str(folder))
    heavy = importlib.import_module("heavy_metrics")
    return float(values.mean()) + len(heavy.TABLE) * 0


def main() -> None:
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    for step in range(1, 61):
        values = torch.rand(10)
        dist.all_reduce(values)
        time.sleep(0.1)
        if step % 10 == 0:
            print(f"rank {rank} step {step}", flush=True)
        if step == 35 and rank == 0:
            print(f"metric {metric(values):.3f}", flush=True)
    dist.destroy_process_group()


main()
