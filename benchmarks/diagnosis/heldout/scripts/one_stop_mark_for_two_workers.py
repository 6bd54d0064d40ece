"""Two worker processes read jobs from a queue until they see None; the rank puts one None and joins both."""

import multiprocessing
import time

import torch
import torch.distributed as dist


def render(jobs, done) -> None:
    while (job := jobs.get()) is not None:
        time.sleep(0.02)
        done.put(job * 2)


def main() -> None:
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    context = multiprocessing.get_context("fork")
    for epoch in range(100):
        for _ in range(15):
            dist.all_reduce(torch.rand(6))
            time.sleep(0.1)
        workers_count = 2 if rank == 0 and epoch == 3 else 1  # more frames at milestones
        jobs, done = context.Queue(), context.Queue()
        workers = [context.Process(target=render, args=(jobs, done)) for _ in range(workers_count)]
        for worker in workers:
            worker.start()
        for frame in range(10):
            jobs.put(frame)
        jobs.put(None)
        frames = [done.get() for _ in range(10)]
        for worker in workers:
            worker.join()
        print(f"rank {rank}: epoch {epoch}, {len(frames)} frames", flush=True)


main()
