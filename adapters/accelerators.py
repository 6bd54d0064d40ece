"""The GPUs of this machine, counted and shared out without a framework."""

from collections.abc import Mapping
from pathlib import Path

VISIBLE = "CUDA_VISIBLE_DEVICES"

SOUGHT = f"NVIDIA GPU is visible here (device files /dev/nvidia0 and up, {VISIBLE})"
"""What `count_gpus` looks for, after the word "no"."""


def count_gpus(environ: Mapping[str, str], root: Path = Path("/")) -> int:
    """The NVIDIA GPUs that a process with this environment can use, without asking CUDA.

    Device files come first, because a container has only those that it was given, while /proc shows the host's.
    CUDA_VISIBLE_DEVICES then selects; as for CUDA, whatever follows an entry that does not exist is ignored.
    """
    present = len([file for file in (root / "dev").glob("nvidia[0-9]*") if file.name[6:].isdigit()])
    present = present or len(list((root / "proc/driver/nvidia/gpus").glob("*")))
    visible = environ.get(VISIBLE)
    if visible is None or not present:
        return present
    count = 0
    for entry in (entry.strip() for entry in visible.split(",")):
        by_name = entry.startswith(("GPU-", "MIG-"))
        if not by_name and not (entry.isascii() and entry.isdigit() and int(entry) < present):
            break
        count += 1
    return count


def own_device(name: str, visible: str | None, local_rank: int) -> str:
    """The one accelerator that a worker sees, of those that the variable `name` shows; None: all are seen (pure).

    Raises ValueError where there are fewer than workers.
    """
    if visible is None:
        return str(local_rank)
    devices = [device.strip() for device in visible.split(",") if device.strip()]
    if local_rank >= len(devices):
        raise ValueError(
            f"{name}={visible} has {len(devices)} devices, and --virtual-local-rank needs one device per worker: "
            f"there is no device for worker {local_rank}; start fewer with --nproc-per-node"
        )
    return devices[local_rank]
