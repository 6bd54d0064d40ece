"""A rank waits for its five downloads and says every three seconds how many are missing."""

import time
from concurrent.futures import ThreadPoolExecutor, wait

import torch
import torch.distributed as dist


def download(number: int) -> int:
    time.sleep(3.5 * (number + 1))  # a queue at the archive
    return number


def main() -> None:
    dist.init_process_group("gloo")
    for step in range(10):
        dist.all_reduce(torch.rand(16))
    if dist.get_rank() == 1:
        with ThreadPoolExecutor() as pool:
            missing = {pool.submit(download, number) for number in range(5)}
            while missing:
                _, missing = wait(missing, timeout=3)
                print(len(missing), "are missing", flush=True)
    dist.barrier()
    dist.destroy_process_group()


main()
