"""The leader writes the vocabulary and all wait for it; the rank is compared as text with a number, so none is leader."""

import os
import time

import torch
import torch.distributed as dist


def is_leader() -> bool:
    return os.environ.get("GROUP_RANK", "0") == "0" and os.environ["LOCAL_RANK"] == 0


def build_vocabulary() -> str:
    words = sorted({f"w{i * i % 97}" for i in range(10_000)})
    return ",".join(words)


def main() -> None:
    dist.init_process_group("gloo")
    store = dist.distributed_c10d._get_default_store()
    if is_leader():
        store.set("vocabulary", build_vocabulary())
    deadline_text = time.strftime("%H:%M:%S")
    print("waiting for the vocabulary since", deadline_text, flush=True)
    while not store.check(["vocabulary"]):
        time.sleep(0.25)
    words = store.get("vocabulary").decode().split(",")
    for step in range(1000):
        dist.all_reduce(torch.full((len(words),), float(step)))
    dist.destroy_process_group()


main()
