"""All ranks parse their own records in plain Python for many seconds, without a word between them."""

import json
import time

import torch
import torch.distributed as dist


def main() -> None:
    dist.init_process_group("gloo")
    for step in range(10):
        dist.all_reduce(torch.rand(16))
    until, fields = time.monotonic() + 17 + 2 * dist.get_rank(), 0
    while time.monotonic() < until:
        fields += len(json.loads(json.dumps({str(number): number for number in range(300)})))
        time.sleep(0.001)
    for step in range(10):
        dist.all_reduce(torch.rand(16))
    dist.destroy_process_group()


main()
