"""torch's ZeroRedundancyOptimizer, whose state is gathered on rank 0 for a checkpoint."""

# pyright: basic

import sys
import time
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.optim import ZeroRedundancyOptimizer
from torch.nn.parallel import DistributedDataParallel

STEPS, EVERY = 60, 10


def main(out: Path) -> None:
    dist.init_process_group("gloo")
    torch.manual_seed(0)
    model = DistributedDataParallel(nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 1)))
    optimizer = ZeroRedundancyOptimizer(model.parameters(), torch.optim.Adam, lr=1e-2)
    snapshot, begun = out / "snapshot.pt", 0
    if snapshot.exists():
        saved = torch.load(snapshot)
        model.module.load_state_dict(saved["model"])
        optimizer.load_state_dict(saved["optimizer"])
        begun = saved["steps"]
        print(f"resumed after step {begun}")
    for step in range(begun, STEPS):
        drawn = torch.Generator().manual_seed(step * dist.get_world_size() + dist.get_rank())
        model(torch.randn(8, 8, generator=drawn)).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()
        time.sleep(0.03)
        if (step + 1) % EVERY == 0:
            optimizer.consolidate_state_dict(to=0)
            if dist.get_rank() == 0:
                saved = {"model": model.module.state_dict(), "optimizer": optimizer.state_dict(), "steps": step + 1}
                torch.save(saved, out / "new.pt")
                (out / "new.pt").replace(snapshot)
            dist.barrier()
    if dist.get_rank() == 0:
        print(f"result {sum(one.double().sum().item() for one in model.parameters()):.9f}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
