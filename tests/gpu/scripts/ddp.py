"""DDP with a checkpoint after each step. The last rank kills itself once, after step 5."""

# torch annotates itself only in part:
# pyright: basic

import os
import signal
import sys
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

STEPS, FATAL = 10, 5

kind, backend, checkpoint = sys.argv[1], sys.argv[2], Path(sys.argv[3])
if kind == "cuda":
    device = torch.device("cuda", int(os.environ["LOCAL_RANK"]))
    torch.cuda.set_device(device)
else:
    device = torch.device("cpu")
dist.init_process_group(backend)
rank, world = dist.get_rank(), dist.get_world_size()
torch.manual_seed(0)
model = DistributedDataParallel(nn.Linear(16, 4).to(device))
optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
step = 0
if checkpoint.exists():
    saved = torch.load(checkpoint, map_location=device, weights_only=True)
    model.module.load_state_dict(saved["model"])
    optimizer.load_state_dict(saved["optimizer"])
    step = int(saved["step"])
print(f"pid {os.getpid()} begins after step {step}", flush=True)
while step < STEPS:
    optimizer.zero_grad()
    model(torch.randn(8, 16, device=device)).square().mean().backward()
    optimizer.step()
    step += 1
    if rank == 0:
        part = checkpoint.with_suffix(".part")
        saved = {"model": model.module.state_dict(), "optimizer": optimizer.state_dict(), "step": step}
        torch.save(saved, part)
        part.rename(checkpoint)
    if step == FATAL and rank == world - 1 and os.environ["TORCHELASTIC_RESTART_COUNT"] == "0":
        os.kill(os.getpid(), signal.SIGKILL)
print(f"ends after step {step} on {device.type} with {dist.get_backend()}", flush=True)
dist.destroy_process_group()
