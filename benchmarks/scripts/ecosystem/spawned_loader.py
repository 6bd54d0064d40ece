"""The same loop with a loader whose workers are spawned, and stay for all epochs."""

# pyright: basic

import sys
import time
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Dataset, DistributedSampler

EPOCHS = 6


class Squares(Dataset):
    def __len__(self) -> int:
        return 48

    def __getitem__(self, index: int) -> tuple[torch.Tensor, torch.Tensor]:
        return torch.full((4,), index / 48), torch.tensor([(index / 48) ** 2])


def main(out: Path) -> None:
    dist.init_process_group("gloo")
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 1))
    snapshot, begun = out / "snapshot.pt", 0
    if snapshot.exists():
        saved = torch.load(snapshot)
        model.load_state_dict(saved["model"])
        begun = saved["epochs"]
        print(f"resumed after epoch {begun}")
    model = DistributedDataParallel(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-1)
    sampler = DistributedSampler(Squares(), seed=1)
    loader = DataLoader(
        Squares(), 8, sampler=sampler, num_workers=2, multiprocessing_context="spawn", persistent_workers=True
    )
    for epoch in range(begun, EPOCHS):
        sampler.set_epoch(epoch)
        for inputs, targets in loader:
            optimizer.zero_grad()
            nn.functional.mse_loss(model(inputs), targets).backward()
            optimizer.step()
            time.sleep(0.05)
        if dist.get_rank() == 0:
            torch.save({"model": model.module.state_dict(), "epochs": epoch + 1}, out / "new.pt")
            (out / "new.pt").replace(snapshot)
        dist.barrier()
    if dist.get_rank() == 0:
        print(f"result {sum(one.double().sum().item() for one in model.parameters()):.9f}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
