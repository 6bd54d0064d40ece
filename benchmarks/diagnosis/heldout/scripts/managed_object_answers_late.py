"""Rank 2 calls a method of an object in a manager process, which waits for its back end for a while."""

import time
from multiprocessing.managers import BaseManager

import torch
import torch.distributed as dist


class Index:
    def search(self, key: str) -> str:
        time.sleep(15)
        return key.upper()


class Manager(BaseManager):
    pass


Manager.register("Index", Index)


def main() -> None:
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    for step in range(60):
        dist.all_reduce(torch.rand(3))
        time.sleep(0.05)
        if rank == 2 and step == 40:
            with Manager() as manager:
                print(manager.Index().search("loss"), flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
