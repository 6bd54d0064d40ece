"""All ranks have agreed on the second at which the next phase begins, when power is cheaper, and sleep until then."""

import datetime
import time

import torch
import torch.distributed as dist


def agree(seconds: float) -> datetime.datetime:
    begin = [datetime.datetime.now(datetime.UTC) + datetime.timedelta(seconds=seconds)]
    dist.broadcast_object_list(begin, src=0)
    return begin[0]


def sleep_until(begin: datetime.datetime) -> None:
    pause = (begin - datetime.datetime.now(datetime.UTC)).total_seconds()
    if pause > 0:
        time.sleep(pause)


def phase(name: str, steps: int) -> None:
    weight = torch.randn(40)
    for step in range(steps):
        dist.all_reduce(weight)
        weight /= weight.norm()
        time.sleep(0.1)
        if step % 10 == 0:
            print(f"{name} {dist.get_rank()}: {step}", flush=True)


dist.init_process_group("gloo")
phase("day", 35)
sleep_until(agree(15))
phase("night", 15)
dist.destroy_process_group()
