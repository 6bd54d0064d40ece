"""A DDP loop whose settings, and whose folder, come from hydra."""

# pyright: basic

import time
from pathlib import Path

import hydra
import torch
import torch.distributed as dist
from hydra.core.hydra_config import HydraConfig
from omegaconf import DictConfig
from torch import nn
from torch.nn.parallel import DistributedDataParallel


@hydra.main(version_base=None, config_path="conf", config_name="config")
def main(settings: DictConfig) -> None:
    dist.init_process_group("gloo")
    torch.manual_seed(0)
    snapshot, begun = Path(HydraConfig.get().runtime.output_dir) / "snapshot.pt", 0
    model = nn.Linear(settings.width, 1)
    if snapshot.exists():
        saved = torch.load(snapshot)
        model.load_state_dict(saved["model"])
        begun = saved["steps"]
        print(f"resumed after step {begun}")
    model = DistributedDataParallel(model)
    optimizer = torch.optim.SGD(model.parameters(), **settings.optimizer)
    for step in range(begun, settings.steps):
        drawn = torch.Generator().manual_seed(step * dist.get_world_size() + dist.get_rank())
        model(torch.randn(4, settings.width, generator=drawn)).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()
        time.sleep(0.03)
        if (step + 1) % settings.every == 0 and dist.get_rank() == 0:
            torch.save({"model": model.module.state_dict(), "steps": step + 1}, snapshot.with_name("new.pt"))
            snapshot.with_name("new.pt").replace(snapshot)
    if dist.get_rank() == 0:
        print(f"result {sum(one.double().sum().item() for one in model.parameters()):.9f}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
