"""Every few steps a forked child writes a snapshot of the weights."""

import multiprocessing as mp
import tempfile
import threading
import time

import torch
import torch.distributed as dist

cache_lock = threading.Lock()
cache = {}


def refresh_cache(slow):
    while True:
        with cache_lock:
            cache["time"] = time.time()
            if slow:
                time.sleep(0.6)
        time.sleep(0.001 if slow else 0.5)


def write_snapshot(path, values):
    with cache_lock:
        stamp = cache.get("time")
    with open(path, "w") as f:
        f.write(f"{stamp} {values[:10]}")


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    folder = tempfile.mkdtemp()
    ctx = mp.get_context("fork")
    w = torch.zeros(256)
    for step in range(400):
        g = torch.randn(256)
        dist.all_reduce(g)
        w.add_(g, alpha=-0.01)
        time.sleep(0.15)
        if step == 12:
            threading.Thread(target=refresh_cache, args=(rank == 0,), daemon=True).start()
        if step % 8 == 7:
            if rank == 0 and step > 12:
                time.sleep(0.2)
            child = ctx.Process(target=write_snapshot, args=(f"{folder}/{step}.txt", w.tolist()))
            child.start()
            child.join()
            print(f"[{rank}] snapshot at step {step}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
