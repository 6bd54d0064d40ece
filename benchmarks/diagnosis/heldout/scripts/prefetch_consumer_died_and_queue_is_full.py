"""Results of each step go through a bounded queue to a writer thread."""

import json
import queue
import tempfile
import threading
import time

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel


def writer(q, path):
    try:
        with open(path, "w") as f:
            while True:
                item = q.get()
                f.write(json.dumps(item) + "\n")
                f.flush()
    except TypeError:
        return  # not serialisable, nothing to write


def main():
    dist.init_process_group(backend="gloo")
    rank = dist.get_rank()
    q = queue.Queue(maxsize=8)
    path = tempfile.mkdtemp() + "/results.jsonl"
    threading.Thread(target=writer, args=(q, path), daemon=True).start()
    model = DistributedDataParallel(torch.nn.Linear(16, 4))
    opt = torch.optim.Adam(model.parameters())
    for step in range(500):
        x, y = torch.randn(32, 16), torch.randint(0, 4, (32,))
        loss = F.cross_entropy(model(x), y)
        opt.zero_grad()
        loss.backward()
        opt.step()
        value = loss.item()
        if rank == 0 and step == 10:
            value = loss.detach()
        q.put({"step": step, "loss": value})
        time.sleep(0.15)
        if step % 5 == 0:
            print(f"rank {rank}: step {step} loss {float(value):.3f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
