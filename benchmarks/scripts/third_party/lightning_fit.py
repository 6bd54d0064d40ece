"""A LightningModule and the Trainer, imported as in Lightning's examples."""

# The libraries annotate themselves only in part:
# pyright: basic

import os
import sys

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
        inputs, labels = batch
        return nn.functional.cross_entropy(self.layer(inputs), labels)

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.1)


def main(out: str) -> None:
    loader = DataLoader(TensorDataset(torch.randn(32, 8), torch.randint(2, (32,))), batch_size=4)
    trainer = L.Trainer(
        accelerator="cpu",
        devices=int(os.environ["LOCAL_WORLD_SIZE"]),
        max_steps=2,
        default_root_dir=out,
        logger=False,
        enable_progress_bar=False,
        callbacks=[ModelCheckpoint(out)],
    )
    trainer.fit(Small(), loader)


if __name__ == "__main__":
    main(sys.argv[1])
