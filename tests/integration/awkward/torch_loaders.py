"""Loads data in processes, works in a process that torch starts, and saves."""

import os
import sys

import torch
import torch.multiprocessing
from torch.utils.data import DataLoader, Dataset, get_worker_info


class Numbers(Dataset):
    def __len__(self):
        return 8

    def __getitem__(self, index):
        return index, get_worker_info().id, torch.initial_seed() - get_worker_info().id


def spawned(index, shared):
    shared[index] += index + torch.get_num_threads()


def main():
    torch.manual_seed(5)
    # The processes draw seeds of their own from the one that is set above.
    loader = DataLoader(Numbers(), batch_size=2, num_workers=2)
    print("loaded", [[column.tolist() for column in batch] for batch in loader])
    shared = torch.zeros(2, dtype=torch.int64).share_memory_()
    torch.multiprocessing.spawn(spawned, (shared,), nprocs=1)
    print(shared - torch.get_num_threads())
    torch.save({"weight": torch.ones(2)}, "saved.pt")
    print(torch.load("saved.pt"), sorted(os.listdir(".")), file=sys.stderr)
    if os.environ.get("FAILS_FIRST") and os.environ["TORCHELASTIC_RESTART_COUNT"] == "0":
        sys.exit(3)


if __name__ == "__main__":
    main()
