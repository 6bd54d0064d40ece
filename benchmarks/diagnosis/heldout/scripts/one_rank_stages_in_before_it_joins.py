"""Rank 2 copies its data in with a rate limit before init_process_group; the others wait there for it."""

import os
import shutil
import tempfile
import time
from datetime import timedelta

import torch
import torch.distributed as dist


def copy_slowly(source: str, target: str, rate: int) -> None:
    with open(source, "rb") as reader, open(target, "wb") as writer:
        while part := reader.read(rate):
            writer.write(part)
            time.sleep(1.0)


def stage_in(megabytes: int) -> None:
    folder = tempfile.mkdtemp(prefix="stage-")
    source = os.path.join(folder, "shard")
    with open(source, "wb") as file:
        file.truncate(megabytes << 20)
    copy_slowly(source, source + ".local", rate=1 << 20)
    shutil.rmtree(folder)


def main() -> None:
    if os.environ["RANK"] == "2":
        stage_in(13)
    dist.init_process_group("gloo", timeout=timedelta(minutes=5))
    for step in range(30):
        dist.all_reduce(torch.rand(12))
        time.sleep(0.1)
        if step % 5 == 0:
            print(f"rank {dist.get_rank()} step {step}", flush=True)
    dist.destroy_process_group()


main()
