"""Ends the recorder process of the first phase politely, before the second phase starts another one."""

import signal
import subprocess
import sys

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

RECORDER = """
import os, signal, time
stop = []
signal.signal(signal.SIGTERM, lambda *_: stop.append(True))
print("recording", flush=True)
parent = os.getppid()
while not stop and os.getppid() == parent:
    time.sleep(0.2)
for chunk in range(28):
    time.sleep(0.5)
"""


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    model = DDP(nn.Linear(8, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    recorder = None
    if rank == 1:
        recorder = subprocess.Popen([sys.executable, "-c", RECORDER], stdout=subprocess.PIPE, text=True)
        recorder.stdout.readline()
    for phase in range(2):
        for _ in range(40):
            optimizer.zero_grad()
            loss = model(torch.randn(16, 8)).pow(2).mean()
            loss.backward()
            optimizer.step()
        print(f"[rank {rank}] phase {phase} loss {loss.item():.4f}", flush=True)
        if recorder is not None and phase == 0:
            recorder.send_signal(signal.SIGTERM)
            code = recorder.wait()
            print(f"[rank {rank}] the recorder ended with {code}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
