"""A background checkpointer and the training loop take the same two locks, each in its own order."""

import threading
import time
from datetime import timedelta

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

model_lock = threading.Lock()
state_lock = threading.Lock()


def snapshot_forever(model: nn.Module, state: dict[str, int]) -> None:
    while True:
        time.sleep(2.5)
        with state_lock:
            step = state["step"]
            time.sleep(0.3)
            with model_lock:
                copies = [p.detach().clone() for p in model.parameters()]
        print(f"snapshot of {len(copies)} tensors at step {step}", flush=True)


def train_step(model, optimizer, state) -> None:
    with model_lock:
        loss = model(torch.randn(8, 10)).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        time.sleep(0.1)
        with state_lock:
            state["step"] += 1


def run() -> None:
    dist.init_process_group("gloo", timeout=timedelta(minutes=20))
    model = DistributedDataParallel(nn.Linear(10, 4))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    state = {"step": 0}
    if dist.get_rank() == 0:
        threading.Thread(target=snapshot_forever, args=(model, state), daemon=True).start()
    while state["step"] < 10_000:
        train_step(model, optimizer, state)
        if dist.get_rank() == 1 and state["step"] % 8 == 0:
            print("step", state["step"], flush=True)


run()
