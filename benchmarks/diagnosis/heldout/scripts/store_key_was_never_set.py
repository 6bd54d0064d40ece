"""Rank 0 announces each checkpoint by a key in the store."""

import datetime
import os
import tempfile
import time

import torch
import torch.distributed as dist


def save_checkpoint(store, step, w):
    path = os.path.join(tempfile.gettempdir(), f"ckpt_{os.getpid()}.pt")
    try:
        if step == 20:
            raise OSError(28, "No space left on device")
        torch.save(w, path)
        os.remove(path)
        store.set(f"ckpt/{step}", path)
    except OSError as e:
        print("could not save:", e)


def wait_for_checkpoint(store, step):
    store.wait([f"ckpt/{step}"], datetime.timedelta(hours=2))


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    store = dist.distributed_c10d._get_default_store()
    w = torch.zeros(400)
    for step in range(300):
        g = torch.randn(400)
        dist.all_reduce(g)
        w += 0.01 * g
        time.sleep(0.2)
        if step % 10 == 0:
            if rank == 0:
                save_checkpoint(store, step, w)
                print("step", step)
            else:
                wait_for_checkpoint(store, step)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
