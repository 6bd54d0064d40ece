"""The data folder has links to itself, and the list of files is made by a walk that follows links."""

import os
import tempfile

import torch
import torch.distributed as dist


def count_files(root: str, suffix: str) -> int:
    total = 0
    for folder, _, names in os.walk(root, followlinks=True):
        total += sum(name.endswith(suffix) for name in names)
    return total


def main() -> None:
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    with tempfile.TemporaryDirectory() as root:
        os.mkdir(os.path.join(root, "train"))
        open(os.path.join(root, "train", "0.jpg"), "w").close()
        if rank == 0:
            for name in ("latest", "v2", "current"):
                os.symlink(root, os.path.join(root, "train", name))
        dist.barrier()
        counts = torch.tensor([float(count_files(root, ".jpg"))])
        dist.all_reduce(counts)
        print(rank, counts.item(), flush=True)
    dist.destroy_process_group()


main()
