"""Every rank waits, by polling, for a file that an operator was to make and did not."""

import tempfile
import time
from pathlib import Path

import torch
import torch.distributed as dist


def wait_for_approval(path: Path) -> None:
    while not path.exists():
        time.sleep(1)


def main() -> None:
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    approval = Path(tempfile.gettempdir()) / "nobody-makes-this" / "approved"
    weight = torch.zeros(10)
    for phase in ("warm-up", "main"):
        for _ in range(40):
            gradient = torch.randn(10)
            dist.all_reduce(gradient)
            weight -= gradient
            time.sleep(0.1)
        print(f"rank {rank}: {phase} done", flush=True)
        wait_for_approval(approval)


main()
