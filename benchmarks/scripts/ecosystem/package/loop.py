"""The loop of the package: torchdata's StatefulDataLoader, whose position is part of the checkpoint."""

# pyright: basic

import time
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.elastic.multiprocessing.errors import record
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import TensorDataset
from torchdata.stateful_dataloader import StatefulDataLoader
from torchdata.stateful_dataloader.sampler import StatefulDistributedSampler

EPOCHS, EVERY = 4, 5


@record
def train(out: Path) -> None:
    dist.init_process_group("gloo")
    torch.manual_seed(0)
    data = TensorDataset(torch.randn(128, 8), torch.randn(128, 1))
    sampler = StatefulDistributedSampler(data, seed=1)
    loader = StatefulDataLoader(data, batch_size=4, sampler=sampler)
    model = nn.Linear(8, 1)
    mine, begun, steps = out / f"rank{dist.get_rank()}.pt", 0, 0
    if (out / f"rank{dist.get_world_size() - 1}.pt").exists():
        saved = torch.load(mine)
        model.load_state_dict(saved["model"])
        loader.load_state_dict(saved["loader"])
        begun, steps = saved["epoch"], saved["steps"]
        print(f"resumed after step {steps}")
    model = DistributedDataParallel(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-2)
    for epoch in range(begun, EPOCHS):
        sampler.set_epoch(epoch)
        for inputs, targets in loader:
            nn.functional.mse_loss(model(inputs), targets).backward()
            optimizer.step()
            optimizer.zero_grad()
            steps += 1
            time.sleep(0.03)
            if steps % EVERY == 0:
                saved = {"model": model.module.state_dict(), "loader": loader.state_dict()}
                torch.save(saved | {"epoch": epoch, "steps": steps}, mine.with_suffix(".new"))
                dist.barrier()  # all have theirs before one replaces the last
                mine.with_suffix(".new").replace(mine)
                dist.barrier()
    if dist.get_rank() == 0:
        print(f"result {sum(one.double().sum().item() for one in model.parameters()):.9f}")
    dist.destroy_process_group()
