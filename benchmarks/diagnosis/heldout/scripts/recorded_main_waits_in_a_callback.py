"""Below @record, a trainer's call-back waits for the evaluation thread to pick up a snapshot; the thread has left."""

import threading
import time

import torch
import torch.distributed as dist
from torch.distributed.elastic.multiprocessing.errors import record


class Evaluation:
    def __init__(self, rounds: int) -> None:
        self.state = threading.Condition()
        self.snapshot: torch.Tensor | None = None
        threading.Thread(target=self.run, args=(rounds,), daemon=True).start()

    def run(self, rounds: int) -> None:
        for _ in range(rounds):
            with self.state:
                self.state.wait_for(lambda: self.snapshot is not None)
                self.snapshot = None
                self.state.notify_all()

    def on_step_end(self, weights: torch.Tensor) -> None:
        with self.state:
            while self.snapshot is not None:
                self.state.wait()
            self.snapshot = weights.clone()
            self.state.notify_all()


def fit(callbacks: list) -> None:
    weights = torch.zeros(9)
    for step in range(1_000_000):
        dist.all_reduce(weights)
        time.sleep(0.1)
        for callback in callbacks:
            callback.on_step_end(weights)
        print(step, flush=True)


@record
def main() -> None:
    dist.init_process_group("gloo")
    fit([Evaluation(rounds=30)] if dist.get_rank() == 0 else [])


if __name__ == "__main__":
    main()
