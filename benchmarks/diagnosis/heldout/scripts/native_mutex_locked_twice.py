"""A mutex of a C library, which one rank locks again in a call-back: the C library waits for itself."""

import ctypes
import time

import torch
import torch.distributed as dist

libc = ctypes.CDLL(None)


class NativeTable:
    """A table whose lock lives in C."""

    def __init__(self) -> None:
        self.mutex = ctypes.create_string_buffer(64)
        libc.pthread_mutex_init(self.mutex, None)
        self.rows: list[float] = []

    def add(self, value: float, on_full=None) -> None:
        libc.pthread_mutex_lock(self.mutex)
        self.rows.append(value)
        if len(self.rows) >= 40 and on_full:
            on_full()
        libc.pthread_mutex_unlock(self.mutex)

    def flush(self) -> None:
        libc.pthread_mutex_lock(self.mutex)
        self.rows.clear()
        libc.pthread_mutex_unlock(self.mutex)


def main() -> None:
    dist.init_process_group("gloo")
    table = NativeTable()
    on_full = table.flush if dist.get_rank() == 0 else None
    for step in range(1_000_000):
        value = torch.randn(1)
        dist.all_reduce(value)
        table.add(value.item(), on_full)
        time.sleep(0.1)
        if dist.get_rank() == 1 and step % 5 == 0:
            print(step, len(table.rows), flush=True)


main()
