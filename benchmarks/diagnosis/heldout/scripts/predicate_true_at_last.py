"""A loop waits on a condition for enough episodes; it is woken often, and the predicate holds only after a long time."""

import threading
import time

import torch
import torch.distributed as dist


class Buffer:
    def __init__(self) -> None:
        self.changed = threading.Condition()
        self.episodes = 0

    def play(self, pause: float) -> None:
        while self.episodes < 64:
            time.sleep(pause)
            with self.changed:
                self.episodes += 1
                self.changed.notify_all()

    def wait_for(self, count: int) -> None:
        with self.changed:
            self.changed.wait_for(lambda: self.episodes >= count)


def main() -> None:
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    buffer = Buffer()
    threading.Thread(target=buffer.play, args=(0.27 if rank == 0 else 0.01,), daemon=True).start()
    buffer.wait_for(64)
    print(rank, "has enough", flush=True)
    for _ in range(40):
        dist.all_reduce(torch.rand(2))
        time.sleep(0.02)
    dist.destroy_process_group()


main()
