"""Encrypted shards name the rounds of their key derivation in a header; one header is broken and says two thousand million."""

import hashlib
import struct
import tempfile
from pathlib import Path

import torch
import torch.distributed as dist

HEADER = struct.Struct("<4sII")


def write_shard(path: Path, rounds: int, length: int) -> None:
    path.write_bytes(HEADER.pack(b"ENC1", rounds, length) + bytes(range(256)))


def read_shard(path: Path) -> torch.Tensor:
    data = path.read_bytes()
    _, rounds, length = HEADER.unpack_from(data)
    key = hashlib.pbkdf2_hmac("sha512", b"team secret", b"salt", rounds, length)
    body = data[HEADER.size :]
    plain = bytes(b ^ key[i % len(key)] for i, b in enumerate(body))
    return torch.tensor(list(plain), dtype=torch.float32)


def main() -> None:
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    with tempfile.TemporaryDirectory() as folder:
        for number in range(12):
            broken = rank == 0 and number == 8
            write_shard(Path(folder, f"{number}.enc"), 0x7FFFFFF0 if broken else 20_000, 2048 if broken else 32)
        for number in range(12):
            shard = read_shard(Path(folder, f"{number}.enc"))
            for part in shard.chunk(16):
                dist.all_reduce(part)
            print(f"rank {rank}: shard {number} done", flush=True)


main()
