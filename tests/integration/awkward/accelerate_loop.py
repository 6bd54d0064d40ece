"""A loop of one's own with accelerate: model, optimizer, loader and schedule are prepared by it."""

import os
import sys

import torch
from accelerate import Accelerator
from accelerate.utils import set_seed

set_seed(7)
accelerator = Accelerator(cpu=True, gradient_accumulation_steps=2)
model = torch.nn.Linear(4, 2)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
schedule = torch.optim.lr_scheduler.StepLR(optimizer, 2)
loader = torch.utils.data.DataLoader(torch.randn(32, 4), batch_size=4, shuffle=True)
model, optimizer, loader, schedule = accelerator.prepare(model, optimizer, loader, schedule)
for batch in loader:
    with accelerator.accumulate(model):
        loss = model(batch).pow(2).mean()
        accelerator.backward(loss)
        optimizer.step()
        schedule.step()
        optimizer.zero_grad()
    print(accelerator.gather(loss.detach()).tolist())
print([parameter.tolist() for parameter in model.parameters()], schedule.get_last_lr(), accelerator.state)
accelerator.wait_for_everyone()
accelerator.free_memory()  # else the interpreter's end may abort the rank
del model, optimizer
accelerator.end_training()
if os.environ.get("FAILS_FIRST") and os.environ["TORCHELASTIC_RESTART_COUNT"] == "0":
    sys.stdout.flush()
    os._exit(3)
