"""Training runs in a thread, under a main thread that joins it; a callback left the lock of the trainer taken."""

import threading
import time

import torch
import torch.distributed as dist


class Trainer(threading.Thread):
    def __init__(self) -> None:
        super().__init__(name="trainer")
        self.paused = threading.Lock()
        self.rank = dist.get_rank()

    def pause(self) -> None:
        self.paused.acquire()

    def resume(self) -> None:
        self.paused.release()

    def run(self) -> None:
        for step in range(100_000):
            with self.paused:
                value = torch.ones(5)
                dist.all_reduce(value)
            time.sleep(0.1)
            if step % 10 == 0:
                print(f"rank {self.rank} step {step}", flush=True)


def main() -> None:
    dist.init_process_group("gloo")
    trainer = Trainer()
    trainer.start()
    if trainer.rank == 0:
        time.sleep(4.5)
        trainer.pause()  # to look at the weights; who calls resume()?
    trainer.join()


main()
