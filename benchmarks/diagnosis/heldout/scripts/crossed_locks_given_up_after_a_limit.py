"""Two threads of a rank take two locks in opposite order; one has a limit of twelve seconds, and lets the other go on."""

import threading
import time

import torch
import torch.distributed as dist

table, index = threading.Lock(), threading.Lock()


def compact() -> None:
    with index:
        time.sleep(0.5)
        if table.acquire(timeout=12):
            table.release()
        else:
            print("compacts another time")


def main() -> None:
    dist.init_process_group("gloo")
    for step in range(20):
        dist.all_reduce(torch.rand(16))
        if step == 10 and dist.get_rank() == 0:
            thread = threading.Thread(target=compact, name="compactor")
            with table:
                thread.start()
                time.sleep(0.2)
                with index:
                    pass
            thread.join()
    dist.destroy_process_group()


main()
