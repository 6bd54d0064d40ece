"""Rank 0 opens the encrypted archive of the data: its key takes many rounds to derive."""

import hashlib
import time

import torch
import torch.distributed as dist


def main() -> None:
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    key = [None]
    if rank == 0:
        begin = time.monotonic()
        secret = b"correct horse battery staple"
        while time.monotonic() - begin < 16:
            secret = hashlib.pbkdf2_hmac("sha512", secret, b"salt", 3_000_000)
        key[0] = secret
    dist.broadcast_object_list(key)
    print(rank, "has a key of", len(key[0]), "bytes", flush=True)
    for step in range(50):
        dist.all_reduce(torch.rand(10))
    dist.destroy_process_group()


main()
