"""Under accelerator.main_process_first() the main process unpacks the data; the others come after it."""

import time

import torch
from accelerate import Accelerator
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


def unpack(parts: int) -> torch.Tensor:
    result = []
    for part in range(parts):
        time.sleep(1.1)
        result.append(torch.randn(100, 6))
    return torch.cat(result)


def main() -> None:
    accelerator = Accelerator(cpu=True)
    cache = {}
    with accelerator.main_process_first():
        cache["x"] = unpack(16) if accelerator.is_main_process else torch.randn(1600, 6)
    model = nn.Linear(6, 2)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    loader = DataLoader(TensorDataset(cache["x"]), batch_size=10)
    model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
    for step, (x,) in enumerate(loader):
        accelerator.backward(model(x).square().mean())
        optimizer.step()
        optimizer.zero_grad()
    accelerator.print("trained", step, "steps", flush=True)
    accelerator.end_training()


main()
