"""A dataset fetches through an event loop in a background thread; the loader's forked process has the loop, not the thread."""

import asyncio
import threading
import time

import torch
import torch.distributed as dist
from torch.utils.data import DataLoader, Dataset


class Remote(Dataset):
    def __init__(self) -> None:
        self.loop = asyncio.new_event_loop()
        threading.Thread(target=self.loop.run_forever, daemon=True, name="io").start()

    async def fetch(self, index: int) -> torch.Tensor:
        await asyncio.sleep(0.02)
        return torch.full((4,), float(index))

    def __len__(self) -> int:
        return 120

    def __getitem__(self, index: int) -> torch.Tensor:
        return asyncio.run_coroutine_threadsafe(self.fetch(index), self.loop).result()


def main() -> None:
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    data = Remote()
    for epoch in range(100):
        workers = 1 if epoch == 2 and rank == 0 else 0
        loader = DataLoader(
            data, batch_size=4, num_workers=workers, multiprocessing_context="fork" if workers else None
        )
        for batch in loader:
            mean = batch.mean()
            dist.all_reduce(mean)
        print(f"rank {rank}: epoch {epoch} done", flush=True)
        time.sleep(0.2)


main()
