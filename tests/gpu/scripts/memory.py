"""Takes most of the device's free memory and kills itself; the worker after it takes as much at once."""

# torch annotates itself only in part:
# pyright: basic

import os
import signal
import sys
from pathlib import Path

import torch

SHARE = 0.7
WITHOUT_A_GPU = 64 << 20

kind, noted = sys.argv[1], Path(sys.argv[2])
first = not noted.exists()
if first:
    size = int(torch.cuda.mem_get_info()[0] * SHARE) if kind == "cuda" else WITHOUT_A_GPU
    noted.write_text(str(size))
size = int(noted.read_text())
held = torch.empty(size, dtype=torch.uint8, device=kind).fill_(1)
assert int(held[-1]) == 1
print(f"pid {os.getpid()} has taken {size} bytes", flush=True)
if first:
    os.kill(os.getpid(), signal.SIGKILL)
