"""The same with Lightning: `OUT STOP [let Lightning replace the sampler]`."""

import os
import sys
from pathlib import Path
from typing import Any

import lightning
import torch
import torch.distributed as dist
from lightning.pytorch.callbacks import ModelCheckpoint
from torch import nn
from torch.utils.data import DataLoader

from elastic_run.torch import ElasticBatchSampler

SIZE, EPOCHS = 101, 3


class Data(lightning.LightningDataModule):
    """Its position is in Lightning's own checkpoint, with the model's."""

    def __init__(self) -> None:
        super().__init__()
        self.sampler = ElasticBatchSampler(SIZE, 4, epochs=EPOCHS)

    def train_dataloader(self) -> "DataLoader[torch.Tensor]":
        return DataLoader(torch.arange(SIZE), batch_sampler=self.sampler)

    def state_dict(self) -> dict[str, Any]:
        return self.sampler.state_dict()

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        self.sampler.load_state_dict(state_dict)


class Commits(lightning.Callback):
    """A callback, because these come before the one that writes checkpoints, and the model's own hooks after it."""

    def __init__(self, sampler: ElasticBatchSampler) -> None:
        self.sampler = sampler
        self.used: list[tuple[int, int]] = []

    def on_train_batch_end(self, trainer: Any, pl_module: Any, outputs: Any, batch: Any, batch_idx: int) -> None:
        self.used += [(self.sampler.epoch, int(record)) for record in batch]
        self.sampler.commit()


class Model(lightning.LightningModule):
    def __init__(self, out: Path, stop: int, commits: Commits) -> None:
        super().__init__()
        self.layer = nn.Linear(1, 1)
        self.out, self.stop, self.commits = out, stop, commits

    def training_step(self, batch: torch.Tensor) -> torch.Tensor:
        return self.layer(batch.float().unsqueeze(1) / SIZE).mean()

    def on_train_batch_end(self, outputs: Any, batch: Any, batch_idx: int) -> None:
        self.stop -= 1
        if self.stop == 0:
            self.tell()
            sys.stdout.flush()
            os._exit(0)  # in the middle of an epoch, as a machine that is taken away

    def tell(self) -> None:
        everybody: list[list[tuple[int, int]]] = [[] for _ in range(dist.get_world_size())]
        dist.all_gather_object(everybody, self.commits.used)
        if dist.get_rank() == 0:
            with (self.out / "used").open("a") as file:
                file.writelines(f"{epoch} {record}\n" for rank in everybody for epoch, record in rank)
        dist.barrier()

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.SGD(self.parameters(), lr=0.01)


def main() -> None:
    out, stop = Path(sys.argv[1]), int(sys.argv[2])
    last = out / "last.ckpt"
    data = Data()
    commits = Commits(data.sampler)
    model = Model(out, stop, commits)
    trainer = lightning.Trainer(
        accelerator="cpu",
        strategy="ddp",
        devices=int(os.environ["LOCAL_WORLD_SIZE"]),
        max_epochs=EPOCHS,
        use_distributed_sampler=len(sys.argv) > 3,
        reload_dataloaders_every_n_epochs=1,  # an epoch that is resumed is shorter than the next
        callbacks=[commits, ModelCheckpoint(out, every_n_train_steps=1, save_last=True)],
        logger=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    trainer.fit(model, datamodule=data, ckpt_path=str(last) if last.exists() else None)
    model.tell()


if __name__ == "__main__":
    main()
