"""Rank 0 writes a long checkpoint to a slow disk, with fsync after each piece."""

import os
import tempfile
import time

import torch
import torch.distributed as dist


def save(state: dict[str, torch.Tensor], seconds: float) -> int:
    path = os.path.join(tempfile.mkdtemp(prefix="ckpt-"), "model.bin")
    end, written = time.monotonic() + seconds, 0
    with open(path, "wb") as file:
        while time.monotonic() < end:
            for tensor in state.values():
                file.seek(0)
                written += file.write(tensor.numpy().tobytes())
                file.flush()
                os.fsync(file.fileno())
    os.unlink(path)
    return written


def main() -> None:
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    state = {f"layer{n}": torch.randn(250_000) for n in range(4)}
    for step in range(1, 61):
        for tensor in state.values():
            dist.all_reduce(tensor)
            tensor /= dist.get_world_size()
        time.sleep(0.08)
        if step % 10 == 0:
            print(f"rank {rank} step {step}", flush=True)
        if step == 30:
            if rank == 0:
                print(f"saved {save(state, 14) >> 20} MiB", flush=True)
            dist.barrier()
    dist.destroy_process_group()


main()
