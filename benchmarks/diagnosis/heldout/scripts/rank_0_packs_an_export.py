"""After the training rank 0 alone packs an export: it serialises and compresses layer by layer."""

import bz2
import io
import time

import torch
import torch.distributed as dist


def pack(layer: torch.Tensor) -> int:
    buffer = io.BytesIO()
    torch.save(layer, buffer)
    return len(bz2.compress(buffer.getvalue()))


def export(layers: list, seconds: float) -> int:
    size, end = 0, time.monotonic() + seconds
    while time.monotonic() < end:
        for layer in layers:
            size += pack(layer)
    return size


def main() -> None:
    dist.init_process_group("gloo")
    layers = [torch.randn(300, 300) for _ in range(4)]
    for step in range(40):
        for layer in layers:
            dist.all_reduce(layer)
            layer /= 3
        time.sleep(0.05)
        if step % 10 == 0:
            print(f"rank {dist.get_rank()} step {step}", flush=True)
    if dist.get_rank() == 0:
        print("packed", export(layers, 12.0), flush=True)
    dist.barrier()
    dist.destroy_process_group()


main()
