"""Ships samples to a logger process through a named pipe per epoch."""

import multiprocessing as mp
import os
import tempfile
import time

import torch
import torch.distributed as dist


def reader(folder, epochs):
    for e in range(epochs):
        with open(f"{folder}/epoch{e}.fifo") as f:
            for _ in f:
                pass


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    folder = tempfile.mkdtemp()
    epochs = 30
    for e in range(epochs):
        os.mkfifo(f"{folder}/epoch{e}.fifo")
    # the reader of rank 1 was configured for the short run
    mp.Process(target=reader, args=(folder, 4 if rank == 1 else epochs), daemon=True).start()
    v = torch.ones(32)
    for e in range(epochs):
        losses = []
        for _ in range(5):
            dist.all_reduce(v)
            v /= v.norm()
            losses.append(float(v[0]))
            time.sleep(0.2)
        with open(f"{folder}/epoch{e}.fifo", "w") as f:
            f.writelines(f"{x}\n" for x in losses)
        print(f"rank {rank} finished epoch {e}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
