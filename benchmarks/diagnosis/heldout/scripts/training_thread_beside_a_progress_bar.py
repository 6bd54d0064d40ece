"""The main thread draws progress, a thread trains; in the middle that of rank 0 ranks candidates."""

import threading
import time

import torch
import torch.distributed as dist


class Trainer:
    def __init__(self, rank: int) -> None:
        self.rank = rank
        self.step = 0
        self.thread = threading.Thread(target=self.train)

    def train(self) -> None:
        for self.step in range(60):
            scores = torch.rand(50)
            dist.all_reduce(scores)
            time.sleep(0.08)
            if self.step == 42 and self.rank == 0:
                self.rank_candidates(scores.tolist(), time.monotonic() + 12)

    def rank_candidates(self, scores: list, end: float) -> list:
        order: list = []
        while time.monotonic() < end:
            order = sorted(range(len(scores)), key=lambda index: -scores[index])
        return order

    def draw(self) -> None:
        self.thread.start()
        while self.thread.is_alive():
            print(f"\r[{self.rank}] {'#' * (self.step // 5)}", end="", flush=True)
            time.sleep(0.5)
        print(flush=True)


if __name__ == "__main__":
    dist.init_process_group("gloo")
    Trainer(dist.get_rank()).draw()
    dist.destroy_process_group()
