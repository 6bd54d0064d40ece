"""A loop of one's own with accelerate, its checkpoints, and `skip_first_batches`, in the form of its documentation."""

# pyright: basic

import sys
import time
from pathlib import Path

import torch
from accelerate import Accelerator
from accelerate.utils import ProjectConfiguration, set_seed
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

EPOCHS, EVERY = 4, 5


class Position:
    def __init__(self) -> None:
        self.steps = 0

    def state_dict(self):
        return {"steps": self.steps}

    def load_state_dict(self, state):
        self.steps = state["steps"]


def main(out: Path) -> None:
    folder = ProjectConfiguration(project_dir=str(out), automatic_checkpoint_naming=True, total_limit=3)
    accelerator = Accelerator(cpu=True, project_config=folder)
    set_seed(42)
    data = TensorDataset(torch.randn(120, 8), torch.randn(120, 1))
    model = nn.Linear(8, 1)
    loader = DataLoader(data, batch_size=4, shuffle=True)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    schedule = torch.optim.lr_scheduler.StepLR(optimizer, 20)
    model, optimizer, loader, schedule = accelerator.prepare(model, optimizer, loader, schedule)
    position = Position()
    accelerator.register_for_checkpointing(position)
    saved = sorted((out / "checkpoints").glob("checkpoint_*/whole"), key=lambda one: int(one.parent.name[11:]))
    if saved:
        accelerator.load_state(str(saved[-1].parent))
        folder.iteration = int(saved[-1].parent.name[11:]) + 1
        accelerator.print(f"resumed after step {position.steps}")
    first, skipped = divmod(position.steps, len(loader))
    for epoch in range(first, EPOCHS):
        loader.set_epoch(epoch)
        batches = accelerator.skip_first_batches(loader, skipped) if epoch == first and skipped else loader
        for inputs, targets in batches:
            accelerator.backward(nn.functional.mse_loss(model(inputs), targets))
            optimizer.step()
            schedule.step()
            optimizer.zero_grad()
            position.steps += 1
            time.sleep(0.03)
            if position.steps % EVERY == 0:
                where = accelerator.save_state()
                accelerator.wait_for_everyone()
                if accelerator.is_main_process:
                    (Path(where) / "whole").touch()
    accelerator.print(f"result {sum(one.double().sum().item() for one in model.parameters()):.9f}")
    accelerator.free_memory()  # else the interpreter's end may abort the rank
    del model, optimizer
    accelerator.end_training()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
