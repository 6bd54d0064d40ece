"""Two ranks shut their remote calls down and wait for the third, which serves until somebody tells it to stop."""

import os
import threading

import torch
from torch.distributed import rpc

told = threading.Event()


def stop() -> None:
    told.set()


def score(values: torch.Tensor) -> float:
    return float(values.mean())


def main() -> None:
    rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    rpc.init_rpc(f"worker{rank}", rank=rank, world_size=world)
    if rank == 2:
        told.wait()
    else:
        for _ in range(20):
            rpc.rpc_sync("worker2", score, (torch.rand(10),))
        if os.environ.get("STOP_EVALUATOR"):
            rpc.rpc_sync("worker2", stop)
    rpc.shutdown(timeout=0)


main()
