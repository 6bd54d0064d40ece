"""`if rank == 0: prepare(); barrier()`, at the start, for twenty seconds."""

import json
import os
import random
import tempfile
import time

import torch
import torch.distributed as dist


def prepare(path: str) -> None:
    end = time.monotonic() + 20
    with open(path, "w") as file:
        while time.monotonic() < end:
            row = {"text": "".join(random.choices("abcdefgh ", k=100)), "label": random.randrange(4)}
            if json.dumps(row).count("a") > 22:
                file.write(json.dumps(row) + "\n")


def main() -> None:
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    box = [os.path.join(tempfile.mkdtemp(prefix="data-"), "train.jsonl")]
    dist.broadcast_object_list(box, src=0)
    if rank == 0:
        print("preparing the data", flush=True)
        prepare(box[0])
    dist.barrier()
    rows = sum(1 for _ in open(box[0]))
    for step in range(30):
        dist.all_reduce(torch.tensor([float(rows)]))
        time.sleep(0.1)
        if step % 10 == 0:
            print(f"rank {rank} step {step} of {rows} rows", flush=True)
    dist.destroy_process_group()


main()
