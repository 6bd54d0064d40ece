"""Two ranks on one device. At some step rank 1 stands still; rank 0 waits for it in a collective, or on the device."""

# torch annotates itself only in part:
# pyright: basic

import sys
import threading

import torch
import torch.distributed as dist

STEPS, FATAL, FOR_EVER = 40, 20, 1 << 62


def synchronize() -> None:
    torch.cuda._sleep(FOR_EVER)
    torch.cuda.synchronize()


def item() -> None:
    torch.cuda._sleep(FOR_EVER)
    torch.ones(1, device="cuda").item()


def event() -> None:
    done = torch.cuda.Event(blocking=True)
    torch.cuda._sleep(FOR_EVER)
    done.record()
    done.synchronize()


def lock() -> None:
    held = threading.Lock()
    held.acquire()
    held.acquire()


how = sys.argv[1]
torch.cuda.set_device(0)
dist.init_process_group("gloo")
rank = dist.get_rank()
for step in range(STEPS):
    if step == FATAL and how == "lock":
        (lock, item)[rank == 0]()
    elif step == FATAL and rank == 1:
        globals()[how]()
    dist.all_reduce(torch.randn(64, 64, device="cuda"))
