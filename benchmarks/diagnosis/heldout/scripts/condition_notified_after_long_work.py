"""The trainer waits at a condition until its evaluator thread lets it go on."""

import threading
import time

import numpy as np
import torch
import torch.distributed as dist


class Evaluator(threading.Thread):
    def __init__(self, seconds):
        super().__init__(daemon=True)
        self.cond = threading.Condition()
        self.requested = self.finished = 0
        self.seconds = seconds

    def run(self):
        while True:
            with self.cond:
                self.cond.wait_for(lambda: self.requested > self.finished)
            end = time.time() + self.seconds
            while time.time() < end:
                a = np.random.rand(300, 300)
                np.linalg.inv(a @ a.T + np.eye(300))
            with self.cond:
                self.finished += 1
                self.cond.notify_all()

    def evaluate(self):
        with self.cond:
            self.requested += 1
            self.cond.notify_all()
            self.cond.wait_for(lambda: self.finished == self.requested)


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    evaluator = Evaluator(11 if rank == 1 else 0.5)
    evaluator.start()
    w = torch.zeros(100)
    for step in range(26):
        g = torch.randn(100)
        dist.all_reduce(g)
        w += g
        time.sleep(0.15)
        if step == 13:
            evaluator.evaluate()
            print(f"rank {rank} evaluated")
    print(f"rank {rank} finished |w| {w.norm():.2f}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
