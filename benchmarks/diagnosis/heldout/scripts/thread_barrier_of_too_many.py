"""Reader threads meet at a threading.Barrier that was made for one more than there are."""

import threading
import time

import numpy as np
import torch
import torch.distributed as dist

READERS = 3


class ShardReader:
    """Reads the columns of a shard in parallel."""

    def __init__(self, columns: int) -> None:
        self.columns = columns
        self.barrier = threading.Barrier(READERS + 1)
        self.output = np.zeros((columns, 10))

    def read_column(self, number: int) -> None:
        self.output[number] = np.random.default_rng(number).normal(size=10)
        self.barrier.wait()

    def read(self) -> np.ndarray:
        threads = [threading.Thread(target=self.read_column, args=(n,)) for n in range(self.columns)]
        for thread in threads:
            thread.start()
        self.barrier.wait()
        for thread in threads:
            thread.join()
        return self.output


def main() -> None:
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    for step in range(100_000):
        columns = 2 if rank == 0 and step == 30 else READERS
        data = torch.from_numpy(ShardReader(columns).read().mean(0))
        dist.all_reduce(data)
        time.sleep(0.1)
        if rank == 2 and step % 10 == 0:
            print("step", step, flush=True)


if __name__ == "__main__":
    main()
