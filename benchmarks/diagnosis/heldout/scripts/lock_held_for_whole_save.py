"""A background saver holds the state's lock while it writes; the trainer needs it too."""

import os
import tempfile
import threading
import time

import torch
import torch.distributed as dist

lock = threading.Lock()


def save_slowly(state, path, delay):
    with lock, open(path, "wb") as f:
        for tensor in state:
            f.write(tensor.numpy().tobytes())
            f.flush()
            os.fsync(f.fileno())
            time.sleep(delay)


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    folder = tempfile.mkdtemp()
    state = [torch.randn(1000) for _ in range(20)]
    saver = None
    for step in range(40):
        g = torch.randn(1000)
        dist.all_reduce(g)
        with lock:
            for t in state:
                t.add_(g, alpha=0.001)
        time.sleep(0.15)
        if step % 15 == 14:
            if saver:
                saver.join()
            delay = 0.6 if rank == 2 and step == 14 else 0.01
            saver = threading.Thread(target=save_slowly, args=(state, f"{folder}/{step}.bin", delay))
            saver.start()
            print(f"rank {rank} saves step {step}")
    saver.join()
    print(f"rank {rank} finished")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
