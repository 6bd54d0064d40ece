"""A LightningModule, the Trainer and its checkpoints; `ckpt_path="last"` resumes."""

# pyright: basic

import os
import sys
import time
from pathlib import Path

import lightning as L
import torch
from lightning.pytorch.callbacks import ModelCheckpoint
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


class Small(L.LightningModule):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(8, 2)

    def training_step(self, batch, number):
        time.sleep(0.03)
        inputs, labels = batch
        return nn.functional.cross_entropy(self.layer(inputs), labels)

    def on_load_checkpoint(self, checkpoint):
        print(f"resumed after step {checkpoint['global_step']}")

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.1, momentum=0.9)


def main(out: Path) -> None:
    L.seed_everything(7)
    data = TensorDataset(torch.randn(64, 8), torch.randint(2, (64,)))
    trainer = L.Trainer(
        accelerator="cpu",
        devices=int(os.environ["LOCAL_WORLD_SIZE"]),
        num_nodes=int(os.environ["GROUP_WORLD_SIZE"]),
        strategy="ddp",
        max_epochs=8,
        default_root_dir=str(out),
        logger=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        callbacks=[ModelCheckpoint(str(out), save_last=True, every_n_epochs=1)],
    )
    model = Small()
    trainer.fit(model, DataLoader(data, batch_size=4, shuffle=True), ckpt_path="last")
    if trainer.is_global_zero:
        print(f"result {sum(one.double().sum().item() for one in model.parameters()):.9f}")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
