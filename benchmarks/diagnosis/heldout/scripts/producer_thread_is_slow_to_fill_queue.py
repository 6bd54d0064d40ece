"""Gets ready batches from a producer thread by a queue."""

import hashlib
import queue
import threading
import time

import torch
import torch.distributed as dist


def produce(q, count, rounds):
    for i in range(count):
        key = b"batch%d" % i
        if i % 12 == 11:
            for _ in range(rounds):  # decrypts the next archive
                key = hashlib.pbkdf2_hmac("sha256", key, b"salt", 1_000_000)
        q.put(torch.tensor([float(b) for b in key[:5]]))
    q.put(None)


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    q = queue.Queue(maxsize=1)
    rounds = 28 if rank == 0 else 1
    threading.Thread(target=produce, args=(q, 20, rounds), daemon=True).start()
    n = 0
    while (x := q.get()) is not None:
        dist.all_reduce(x)
        n += 1
        time.sleep(0.25)
        if n % 4 == 0:
            print(f"rank {rank} batch {n} mean {x.mean():.1f}")
    print(f"rank {rank}: {n} batches")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
