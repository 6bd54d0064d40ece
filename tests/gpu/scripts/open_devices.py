"""Which processes of the job have a device open: before any worker has used one, and after each has.

It prints both as JSON, by pid, with the pids of those that have torch in memory. Without a GPU it does the same with
/dev/zero, which each worker opens: so what looks for open devices is tried there, too.
"""

# torch annotates itself only in part:
# pyright: basic

import contextlib
import json
import os
import sys
from pathlib import Path

import torch
import torch.distributed as dist

kind, mark = sys.argv[1:]
DEVICE = "/dev/nvidia" if kind == "cuda" else "/dev/zero"


def processes() -> list[Path]:
    """Those that the test's run has started."""
    found: list[Path] = []
    for folder in Path("/proc").iterdir():
        with contextlib.suppress(OSError):
            if folder.name.isdigit() and mark.encode() in (folder / "environ").read_bytes():
                found.append(folder)
    return found


def opened() -> dict[int, list[str]]:
    found: dict[int, list[str]] = {}
    for folder in processes():
        files: set[str] = set()
        with contextlib.suppress(OSError):
            for file in (folder / "fd").iterdir():
                with contextlib.suppress(OSError):  # closed meanwhile
                    files.add(str(file.readlink()))
        if devices := sorted(file for file in files if file.startswith(DEVICE)):
            found[int(folder.name)] = devices
    return found


def with_torch() -> list[int]:
    found: list[int] = []
    for folder in processes():
        with contextlib.suppress(OSError):
            if "libtorch_cpu" in (folder / "maps").read_text():
                found.append(int(folder.name))
    return found


dist.init_process_group("gloo")
before = opened()
dist.barrier()
used = torch.zeros(1, device="cuda") if kind == "cuda" else os.open(DEVICE, os.O_RDONLY)
dist.barrier()
found = {"rank": dist.get_rank(), "pid": os.getpid(), "before": before, "after": opened(), "with_torch": with_torch()}
print(json.dumps(found), flush=True)
dist.barrier()
dist.destroy_process_group()
