"""The converter asks whether it may overwrite its output, on a pipe to which nobody writes."""

import subprocess
import sys
import tempfile
from pathlib import Path

import torch
import torch.distributed as dist

CONVERTER = """
import pathlib, sys
target = pathlib.Path(sys.argv[1])
if target.exists():
    print(f"{target} exists. Overwrite? [y/N] ", end="", flush=True)
    if sys.stdin.readline().strip() != "y":
        sys.exit(1)
target.write_bytes(bytes(1000))
"""


def convert(target: Path) -> None:
    process = subprocess.Popen(
        [sys.executable, "-c", CONVERTER, str(target)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    if process.wait():
        raise RuntimeError("the converter failed")


def main() -> None:
    dist.init_process_group("gloo")
    folder = Path(tempfile.mkdtemp())
    for step in range(10_000):
        if dist.get_rank() == 1 and step % 6 == 5:
            convert(folder / f"sample-{step % 36}.wav")
        dist.all_reduce(torch.rand(16))


main()
