"""ignite's Engine, its checkpoint handler and its `idist`, in the form of its examples."""

# pyright: basic

import sys
import time
from pathlib import Path

import ignite.distributed as idist
import torch
from ignite.engine import Engine, Events
from ignite.handlers import Checkpoint, DiskSaver
from torch import nn
from torch.utils.data import TensorDataset


def train(_: int, out: Path) -> None:
    torch.manual_seed(0)
    data = TensorDataset(torch.randn(64, 8), torch.randn(64, 1))
    loader = idist.auto_dataloader(data, batch_size=8, shuffle=True)
    model = idist.auto_model(nn.Linear(8, 1))
    optimizer = idist.auto_optim(torch.optim.SGD(model.parameters(), lr=1e-2))

    def step(engine: Engine, batch):
        time.sleep(0.03)
        optimizer.zero_grad()
        loss = nn.functional.mse_loss(model(batch[0]), batch[1])
        loss.backward()
        optimizer.step()
        return loss.item()

    trainer = Engine(step)

    @trainer.on(Events.EPOCH_STARTED)
    def _(engine: Engine) -> None:
        loader.sampler.set_epoch(engine.state.epoch)

    state = {"trainer": trainer, "model": model, "optimizer": optimizer}
    saver = DiskSaver(str(out), require_empty=False)
    trainer.add_event_handler(Events.EPOCH_COMPLETED, Checkpoint(state, saver, n_saved=2))
    saved = sorted(out.glob("checkpoint_*.pt"), key=lambda one: int(one.stem.split("_")[1]))
    if saved:
        Checkpoint.load_objects(state, torch.load(saved[-1]))
        print(f"resumed from {saved[-1].name}")
    trainer.run(loader, max_epochs=10)
    if idist.get_rank() == 0:
        print(f"result {sum(one.double().sum().item() for one in model.parameters()):.9f}")


if __name__ == "__main__":
    with idist.Parallel(backend="gloo") as parallel:
        parallel.run(train, Path(sys.argv[1]))
