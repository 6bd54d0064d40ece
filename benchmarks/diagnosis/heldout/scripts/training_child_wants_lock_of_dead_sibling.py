"""Each rank trains in a child; a sibling that writes samples died with the lock for the console in its hands."""

import multiprocessing
import os
import time

import torch
import torch.distributed as dist

fork = multiprocessing.get_context("fork")


def write_samples(console) -> None:
    time.sleep(3)
    console.acquire()
    os._exit(1)


def train(console) -> None:
    dist.init_process_group("gloo")
    for step in range(1_000_000):
        loss = torch.rand(1)
        dist.all_reduce(loss)
        time.sleep(0.1)
        with console:
            print(f"[{os.environ['RANK']}] {step} {loss.item():.3f}", flush=True)


def main() -> None:
    console = fork.Lock()
    trainer = fork.Process(target=train, args=(console,))
    trainer.start()
    if os.environ["RANK"] == "0":
        time.sleep(8)
        fork.Process(target=write_samples, args=(console,)).start()
    trainer.join()


if __name__ == "__main__":
    main()
