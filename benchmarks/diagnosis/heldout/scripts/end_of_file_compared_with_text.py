"""A binary file is read by iter(read, ""), which never ends, because the end of a binary file is b""."""

import hashlib
import tempfile
import time

import torch
import torch.distributed as dist


def digest(path: str, mode: str) -> str:
    result = hashlib.sha256()
    with open(path, mode) as file:
        for block in iter(lambda: file.read(4096), ""):
            result.update(block if isinstance(block, bytes) else block.encode())
    return result.hexdigest()


def main() -> None:
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    with tempfile.NamedTemporaryFile() as vocabulary:
        vocabulary.write(b"token\n" * 10_000)
        vocabulary.flush()
        for step in range(10_000):
            dist.all_reduce(torch.rand(3))
            time.sleep(0.05)
            if step % 50 == 0:
                print(rank, digest(vocabulary.name, "r")[:8], flush=True)
            if step == 80 and rank == 2:
                print("weights", digest(vocabulary.name, "rb")[:8], flush=True)


main()
