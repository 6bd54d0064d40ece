"""Below @record, rank 0 deletes old shards a few at a time, so as not to disturb a shared file system."""

import pathlib
import tempfile
import time

import torch
import torch.distributed as dist
from torch.distributed.elastic.multiprocessing.errors import record


def make(folder: pathlib.Path, files: int) -> None:
    for number in range(files):
        (folder / f"{number:05d}.old").write_bytes(b"x" * 100)


def delete_gently(folder: pathlib.Path) -> int:
    deleted = 0
    for path in sorted(folder.glob("*.old")):
        path.unlink()
        deleted += 1
        if deleted % 20 == 0:
            time.sleep(0.6)
    return deleted


@record
def main() -> None:
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    with tempfile.TemporaryDirectory() as name:
        make(pathlib.Path(name), 420 if rank == 0 else 0)
        for step in range(50):
            dist.all_reduce(torch.rand(100))
            time.sleep(0.1)
            if rank == 0 and step == 35:
                print("deleted", delete_gently(pathlib.Path(name)), flush=True)
            if rank == 1 and step % 10 == 0:
                print("step", step, flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
