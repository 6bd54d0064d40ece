"""Runs an external scoring command after each short epoch."""

import subprocess
import sys
import time

import torch
import torch.distributed as dist


def score(lines):
    code = f"for i in range({lines}): print('sample', i, 'score', i * 0.5)"
    p = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
    p.wait()
    last = p.stdout.read().splitlines()[-1]
    return float(last.split()[-1])


def train_one_epoch(model, opt, steps=5):
    for _ in range(steps):
        x = torch.randn(16, 10)
        loss = model(x).pow(2).mean()
        opt.zero_grad()
        loss.backward()
        opt.step()
        time.sleep(0.1)
    return loss.item()


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(10, 1))
    opt = torch.optim.SGD(model.parameters(), lr=0.05)
    for epoch in range(40):
        loss = train_one_epoch(model, opt)
        n = 500
        if rank == 1 and epoch == 3:
            n = 50_000  # the whole validation set this time
        s = score(n)
        print(f"rank {rank} epoch {epoch} loss {loss:.4f} score {s}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
