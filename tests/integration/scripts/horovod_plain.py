"""A Horovod script without `hvd.elastic`: it is started again after each change, and goes on from its checkpoint."""

import os
import sys
import time
from pathlib import Path

import horovod.torch as hvd
import torch

FOLDER = Path(sys.argv[1])
STEPS, GATE = 10, 5

hvd.init()
model = torch.nn.Linear(2, 1, bias=False)
with torch.no_grad():
    model.weight.fill_(float(hvd.rank() + 1))
begun = 0
if (FOLDER / "checkpoint").exists():
    begun, weights = torch.load(FOLDER / "checkpoint")
    model.load_state_dict(weights)
hvd.broadcast_parameters(model.state_dict(), root_rank=0)
optimizer = torch.optim.SGD(model.parameters(), lr=0.25)
optimizer = hvd.DistributedOptimizer(optimizer, named_parameters=model.named_parameters())
places = hvd.allgather(torch.tensor([[hvd.rank(), hvd.local_rank(), hvd.cross_rank(), hvd.cross_size()]]))
os.write(1, f"begin at {begun}: rank {hvd.rank()} of {hvd.size()}, places {places.tolist()}\n".encode())
for step in range(begun, STEPS):
    if step == GATE:
        os.write(1, f"gate: rank {hvd.rank()}\n".encode())
    while step == GATE and not (FOLDER / "go").exists():
        time.sleep(0.05)
    optimizer.zero_grad()
    model(torch.tensor([[float(step), float(hvd.rank())]])).sum().backward()
    optimizer.step()
    if hvd.rank() == 0:
        torch.save((step + 1, model.state_dict()), FOLDER / "new")
        (FOLDER / "new").replace(FOLDER / "checkpoint")
    hvd.barrier()
if hvd.rank() == 0:
    os.write(1, f"result {model.weight[0].tolist()}\n".encode())
