"""A module-level thread pool is used by the rank and then by its forked helper, where it has no threads any more."""

import concurrent.futures
import multiprocessing
import time

import torch
import torch.distributed as dist

POOL = concurrent.futures.ThreadPoolExecutor(max_workers=2)


def resize(image: torch.Tensor) -> torch.Tensor:
    return image[::2, ::2].contiguous()


def resize_all(count: int) -> float:
    images = [torch.rand(32, 32) for _ in range(count)]
    return float(sum(image.mean() for image in POOL.map(resize, images)))


def make_preview(path) -> None:
    path.send(resize_all(8))


def main() -> None:
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    context = multiprocessing.get_context("fork")
    for step in range(10_000):
        value = torch.tensor([resize_all(6)])
        dist.all_reduce(value)
        time.sleep(0.1)
        if step == 30 and rank == 2:
            ours, theirs = context.Pipe(duplex=False)
            helper = context.Process(target=make_preview, args=(theirs,))
            helper.start()
            print("preview", ours.recv(), flush=True)
            helper.join()
        if step % 10 == 0:
            print(rank, step, flush=True)


main()
