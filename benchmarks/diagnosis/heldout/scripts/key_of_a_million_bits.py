"""A rank checks a signature with a key a hundred times too long, in one call that keeps the interpreter lock."""

import torch
import torch.distributed as dist


def verify(signature: int, modulus: int, bits: int) -> int:
    return pow(signature, (1 << bits) - 1, modulus)


def main() -> None:
    dist.init_process_group("gloo")
    for step in range(10_000):
        if dist.get_rank() == 2 and step % 10 == 9:
            bits = 1_000_000 if step == 29 else 1_000
            verify(0xC0FFEE, (1 << bits) - 159, bits)
        dist.all_reduce(torch.rand(16))


main()
