"""A Lightning callback evaluates on the first rank only after the epoch, and all ranks meet at the barrier behind it."""

import time

import lightning as L
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


class Net(L.LightningModule):
    def __init__(self) -> None:
        super().__init__()
        self.net = nn.Linear(8, 1)

    def training_step(self, batch, index):
        return self.net(batch[0]).square().mean()

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.01)


class Generate(L.Callback):
    def on_train_epoch_end(self, trainer, module) -> None:
        if trainer.is_global_zero:
            state = torch.randn(200, 8)
            end = time.monotonic() + 9
            while time.monotonic() < end:
                with torch.no_grad():
                    state = torch.tanh(state + module.net(state))
            print("generated", float(state.mean()), flush=True)
        trainer.strategy.barrier("generated")


if __name__ == "__main__":
    data = DataLoader(TensorDataset(torch.randn(600, 8)), batch_size=4)
    trainer = L.Trainer(
        accelerator="cpu",
        devices=3,
        strategy="ddp",
        max_epochs=2,
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        callbacks=[Generate()],
    )
    trainer.fit(Net(), data)
