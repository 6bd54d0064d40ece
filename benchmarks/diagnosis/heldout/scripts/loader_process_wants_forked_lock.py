"""DataLoader processes are forked while a thread of the rank holds the lock that the dataset takes."""

import threading
import time

import torch
import torch.distributed as dist
from torch.utils.data import DataLoader, Dataset


class Corpus(Dataset):
    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.vocabulary: dict[int, int] = {}

    def __len__(self) -> int:
        return 60

    def __getitem__(self, index: int) -> torch.Tensor:
        with self.lock:
            token = self.vocabulary.setdefault(index, len(self.vocabulary))
        return torch.tensor([float(token)])

    def grow(self) -> None:
        with self.lock:
            for word in range(20):
                self.vocabulary[1_000 + word] = word
                time.sleep(0.1)


def main() -> None:
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    corpus = Corpus()
    for epoch in range(1_000):
        if rank == 0 and epoch == 3:
            threading.Thread(target=corpus.grow).start()
            time.sleep(0.1)
        for batch in DataLoader(corpus, batch_size=6, num_workers=1, multiprocessing_context="fork"):
            total = batch.sum()
            dist.all_reduce(total)
            time.sleep(0.05)
        if rank == 2:
            print(f"epoch {epoch} total {total.item():.0f}", flush=True)


main()
