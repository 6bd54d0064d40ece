"""Rank 0 maps its data set with two processes of the datasets library; each example asks a slow parser."""

import os
import tempfile
import time

import torch
import torch.distributed as dist


def parse(example: dict) -> dict:
    time.sleep(0.09)
    return {"length": len(example["text"].split())}


def prepare() -> float:
    os.environ["HF_DATASETS_OFFLINE"] = "1"
    with tempfile.TemporaryDirectory() as cache:
        os.environ["HF_DATASETS_CACHE"] = cache
        import datasets

        datasets.disable_progress_bars()
        data = datasets.Dataset.from_dict({"text": [f"sentence {i} of many" for i in range(300)]})
        mapped = data.map(parse, num_proc=2)
        return float(sum(mapped["length"]))


def main() -> None:
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    total = torch.zeros(1)
    if rank == 0:
        total[0] = prepare()
    dist.broadcast(total, 0)
    print(rank, total.item(), flush=True)
    for _ in range(30):
        dist.all_reduce(torch.rand(10))
        time.sleep(0.05)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
