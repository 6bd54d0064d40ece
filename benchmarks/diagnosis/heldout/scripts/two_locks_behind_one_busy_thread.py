"""In rank 1 the loop waits for a lock whose thread waits for another lock, whose thread is at work."""

import threading
import time

import torch
import torch.distributed as dist

cache, disk = threading.RLock(), threading.RLock()


def compact(seconds: float) -> None:
    with disk:
        end, moved = time.monotonic() + seconds, 0
        while time.monotonic() < end:
            moved += sum(number * number for number in range(1_000))
            time.sleep(0.001)


def refresh() -> None:
    with cache:
        time.sleep(0.1)
        with disk:
            time.sleep(0.1)


def look_up(key: int) -> float:
    with cache:
        return key * 0.5


def main() -> None:
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    for step in range(55):
        if rank == 1 and step == 38:
            for work, arguments in ((compact, (13.0,)), (refresh, ())):
                threading.Thread(target=work, args=arguments).start()
                time.sleep(0.05)
        dist.all_reduce(torch.tensor(look_up(step)))
        time.sleep(0.1)
        if step % 10 == 0:
            print(rank, step, flush=True)
    dist.destroy_process_group()


main()
