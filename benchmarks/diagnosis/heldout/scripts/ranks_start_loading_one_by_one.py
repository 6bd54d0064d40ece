"""Loads a large checkpoint rank by rank, so that the memory of the host suffices."""

import os
import tempfile
import time

import torch
import torch.distributed as dist


def save(path):
    torch.save({f"layer{i}": torch.randn(100, 100) for i in range(60)}, path)


def load(path):
    state = torch.load(path)
    for name, tensor in state.items():
        tensor.mul_(1.0)
        time.sleep(0.07)  # to the device
    return state


def main():
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    box = [os.path.join(tempfile.mkdtemp(), "model.pt") if rank == 0 else None]
    dist.broadcast_object_list(box)
    if rank == 0:
        save(box[0])
    x = torch.ones(100)
    for _ in range(10):
        dist.all_reduce(x)
        x /= 3
        time.sleep(0.2)
    for r in range(world):
        if r == rank:
            state = load(box[0])
            print(f"rank {rank} has loaded {len(state)} tensors")
        dist.barrier()
    for i in range(12):
        y = state[f"layer{i}"] @ x
        dist.all_reduce(y)
        time.sleep(0.2)
    print(f"rank {rank} finished {y.norm():.2f}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
