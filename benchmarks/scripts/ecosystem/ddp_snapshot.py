"""A trainer with a snapshot after each epoch, in the form of torch's tutorial on fault-tolerant training."""

# pyright: basic

import sys
import time
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

EPOCHS = 8


def main(out: Path) -> None:
    dist.init_process_group("gloo")
    torch.manual_seed(0)
    data = TensorDataset(torch.randn(64, 20), torch.randn(64, 1))
    model = nn.Linear(20, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-2, momentum=0.9)
    snapshot, begun = out / "snapshot.pt", 0
    if snapshot.exists():
        saved = torch.load(snapshot)
        model.load_state_dict(saved["model"])
        optimizer.load_state_dict(saved["optimizer"])
        begun = saved["epochs"]
        print(f"resumed after epoch {begun}")
    model = DistributedDataParallel(model)
    loader = DataLoader(data, batch_size=8, sampler=DistributedSampler(data, seed=1))
    for epoch in range(begun, EPOCHS):
        loader.sampler.set_epoch(epoch)
        for inputs, targets in loader:
            optimizer.zero_grad()
            nn.functional.mse_loss(model(inputs), targets).backward()
            optimizer.step()
            time.sleep(0.05)
        if dist.get_rank() == 0:
            saved = {"model": model.module.state_dict(), "optimizer": optimizer.state_dict(), "epochs": epoch + 1}
            torch.save(saved, out / "new.pt")
            (out / "new.pt").replace(snapshot)
        dist.barrier()
    if dist.get_rank() == 0:
        print(f"result {sum(one.double().sum().item() for one in model.parameters()):.9f}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
