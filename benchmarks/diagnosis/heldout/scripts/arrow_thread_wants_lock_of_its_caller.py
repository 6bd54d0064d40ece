"""A file object under a lock is read by Arrow's own thread, while the caller holds the lock and waits for Arrow."""

import io
import threading
import time

import pyarrow as pa
import pyarrow.csv
import torch
import torch.distributed as dist


class Counted(io.RawIOBase):
    def __init__(self, data: bytes, lock) -> None:
        self.data, self.lock, self.at = data, lock, 0

    def readable(self) -> bool:
        return True

    def read(self, size: int = -1) -> bytes:
        with self.lock:
            size = len(self.data) if size is None or size < 0 else size
            part = self.data[self.at : self.at + size]
            self.at += len(part)
            return part


def main() -> None:
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    lock = threading.RLock()
    text = b"a,b\n" + b"1,2\n3,4\n" * 1000
    for step in range(10_000):
        if rank == 2 and step == 30:
            with lock:  # nobody else shall read this file meanwhile
                table = pa.csv.read_csv(pa.PythonFile(Counted(text, lock), mode="r"))
        else:
            table = pa.csv.read_csv(pa.PythonFile(Counted(text, lock), mode="r"))
        total = torch.tensor([float(table["a"].to_pandas().sum())])
        dist.all_reduce(total)
        time.sleep(0.1)
        if step % 10 == 0:
            print(rank, step, total.item(), flush=True)


main()
