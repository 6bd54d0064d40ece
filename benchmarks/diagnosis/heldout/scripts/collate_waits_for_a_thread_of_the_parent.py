"""The collate function asks a thread for captions; in the loader's workers that thread does not exist."""

import queue
import threading

import torch
import torch.distributed as dist
from torch.utils.data import DataLoader, TensorDataset

asked: "queue.Queue[int]" = queue.Queue()
answers: "queue.Queue[torch.Tensor]" = queue.Queue()


def caption() -> None:
    while True:
        answers.put(torch.full((4,), float(asked.get())))


def collate(rows: list) -> torch.Tensor:
    asked.put(len(rows))
    return torch.stack([row for (row,) in rows]) + answers.get()


def main() -> None:
    dist.init_process_group("gloo")
    threading.Thread(target=caption, daemon=True).start()
    workers = 1 if dist.get_rank() == 1 else 0  # a setting of that node
    data = TensorDataset(torch.rand(4000, 4))
    for batch in DataLoader(data, batch_size=8, num_workers=workers, collate_fn=collate):
        dist.all_reduce(batch.sum())
    for _ in range(10_000):
        dist.all_reduce(torch.rand(1))


main()
