"""Fully sharded training (`fully_shard`) with torch's distributed checkpoints, in the form of torch's recipe."""

# pyright: basic

import sys
import time
from pathlib import Path

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch import nn
from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict
from torch.distributed.checkpoint.stateful import Stateful
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

STEPS, EVERY = 60, 10


class AppState(Stateful):
    def __init__(self, model: nn.Module, optimizer: torch.optim.Optimizer) -> None:
        self.model, self.optimizer, self.steps = model, optimizer, 0

    def state_dict(self):
        model, optimizer = get_state_dict(self.model, self.optimizer)
        return {"model": model, "optimizer": optimizer, "steps": self.steps}

    def load_state_dict(self, state):
        set_state_dict(self.model, self.optimizer, model_state_dict=state["model"], optim_state_dict=state["optimizer"])
        self.steps = state["steps"]


def main(out: Path) -> None:
    dist.init_process_group("gloo")
    torch.manual_seed(0)
    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    model = nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 16))
    for layer in model:
        if isinstance(layer, nn.Linear):
            fully_shard(layer, mesh=mesh)
    fully_shard(model, mesh=mesh)
    app = AppState(model, torch.optim.AdamW(model.parameters(), lr=1e-2))
    if whole := sorted(out.glob("step-*/.metadata")):  # it is written last
        dcp.load({"app": app}, checkpoint_id=whole[-1].parent)
        print(f"resumed after step {app.steps}")
    while app.steps < STEPS:
        drawn = torch.Generator().manual_seed(app.steps * dist.get_world_size() + dist.get_rank())
        model(torch.randn(4, 16, generator=drawn)).square().mean().backward()
        app.optimizer.step()
        app.optimizer.zero_grad()
        app.steps += 1
        time.sleep(0.03)
        if app.steps % EVERY == 0:
            dcp.save({"app": app}, checkpoint_id=out / f"step-{app.steps:04d}")
    total = sum(one.full_tensor().double().sum().item() for one in model.parameters())
    if dist.get_rank() == 0:
        print(f"result {total:.9f}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
