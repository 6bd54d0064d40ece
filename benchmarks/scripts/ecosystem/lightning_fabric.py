"""Lightning's Fabric: a loop of one's own with its setup, its `backward` and its checkpoints."""

# pyright: basic

import os
import sys
import time
from pathlib import Path

import torch
from lightning.fabric import Fabric
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

EPOCHS = 6


def main(out: Path) -> None:
    fabric = Fabric(
        accelerator="cpu",
        devices=int(os.environ["LOCAL_WORLD_SIZE"]),
        num_nodes=int(os.environ["GROUP_WORLD_SIZE"]),
        strategy="ddp",
    )
    fabric.launch()
    fabric.seed_everything(7)
    model = nn.Linear(8, 1)
    model, optimizer = fabric.setup(model, torch.optim.SGD(model.parameters(), lr=1e-2))
    data = TensorDataset(torch.randn(64, 8), torch.randn(64, 1))
    loader = fabric.setup_dataloaders(DataLoader(data, batch_size=4))
    state = {"model": model, "optimizer": optimizer, "epochs": 0}
    last = out / "last.ckpt"
    if last.exists():
        fabric.load(last, state)
        fabric.print(f"resumed after epoch {state['epochs']}")
    while state["epochs"] < EPOCHS:
        for inputs, targets in loader:
            fabric.backward(nn.functional.mse_loss(model(inputs), targets))
            optimizer.step()
            optimizer.zero_grad()
            time.sleep(0.05)
        state["epochs"] += 1
        fabric.save(out / "new.ckpt", state)
        if fabric.is_global_zero:
            (out / "new.ckpt").replace(last)
        fabric.barrier()
    fabric.print(f"result {sum(one.double().sum().item() for one in model.parameters()):.9f}")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
