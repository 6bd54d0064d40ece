"""Worker processes merge their word counts into one shared dictionary, one after another."""

import multiprocessing as mp
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP


def count(shared, lock, words):
    with lock:
        for word in words:
            shared[word] = shared.get(word, 0) + 1
            time.sleep(0.02)


def count_all(words, workers=4):
    with mp.Manager() as manager:
        shared, lock = manager.dict(), manager.Lock()
        processes = [mp.Process(target=count, args=(shared, lock, words[part::workers])) for part in range(workers)]
        for process in processes:
            process.start()
        for process in processes:
            process.join()
        with lock:
            return dict(shared)


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    model = DDP(nn.Linear(8, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    words = [f"word{index * 31 % 101}" for index in range(600)]
    size = torch.zeros(1)
    for epoch in range(2):
        if epoch == 1:
            if rank == 1:
                size += len(count_all(words))
            dist.broadcast(size, src=1)
        for _ in range(20):
            optimizer.zero_grad()
            loss = model(torch.randn(16, 8)).pow(2).mean()
            loss.backward()
            optimizer.step()
        print(f"[rank {rank}] epoch {epoch} loss {loss.item():.4f} vocabulary {int(size)}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
