"""Asynchronous checkpoints: the writer thread fails before it sets `done`."""

import json
import tempfile
import threading
import time
from pathlib import Path

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP


class AsyncCheckpoint:
    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.done = threading.Event()
        self.done.set()

    def save(self, step: int, state: dict, extra: dict) -> None:
        self.done.wait()
        self.done.clear()
        threading.Thread(target=self._write, args=(step, state, extra), name="ckpt-writer").start()

    def _write(self, step: int, state: dict, extra: dict) -> None:
        torch.save(state, self.folder / f"{step}.pt")
        (self.folder / f"{step}.json").write_text(json.dumps(extra))
        self.done.set()


def main() -> None:
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(rank)
    model = DDP(nn.Sequential(nn.Linear(20, 20), nn.ReLU(), nn.Linear(20, 2)))
    optimizer = torch.optim.Adam(model.parameters())
    checkpoint = AsyncCheckpoint(Path(tempfile.mkdtemp(prefix="ckpt-")))
    best = 10.0
    for step in range(1, 100_000):
        loss = F.mse_loss(model(torch.randn(16, 20)), torch.zeros(16, 2))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        time.sleep(0.07)
        if rank == 0 and step % 15 == 0:
            extra = {"step": step, "best": best if step < 30 else loss}
            checkpoint.save(step, model.state_dict(), extra)
            print(f"step {step} loss {loss.item():.3f}", flush=True)


if __name__ == "__main__":
    main()
