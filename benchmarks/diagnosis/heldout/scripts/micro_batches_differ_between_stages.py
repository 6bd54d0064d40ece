"""The middle stage of a pipeline cuts its batch into three micro-batches, the stages around it into four."""

import time

import torch
import torch.distributed as dist


def forward(rank: int, pieces: int) -> None:
    for piece in range(pieces):
        x = torch.full((4, 8), float(piece))
        if rank > 0:
            dist.recv(x, src=rank - 1, tag=piece)
        x = torch.relu(x * 1.1)
        if rank < 2:
            dist.send(x, dst=rank + 1, tag=piece)


def main() -> None:
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    data_group = dist.new_group([0, 1, 2])
    for step in range(10_000):
        batch_size = 32
        if step >= 35:
            batch_size = 24  # a smaller batch at the end of the curriculum
        pieces = batch_size // 8 if rank == 1 or step < 35 else 4
        forward(rank, pieces)
        dist.all_reduce(torch.rand(3), group=data_group)
        time.sleep(0.08)
        if step % 10 == 0:
            print(f"stage {rank}: step {step}", flush=True)


main()
