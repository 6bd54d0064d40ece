"""A pipeline of three stages; the first one renders its inputs itself."""

import math
import time

import torch
import torch.distributed as dist


def render(seconds):
    end = time.time() + seconds
    image = [0.0] * 256
    k = 0
    while time.time() < end:
        for i in range(256):
            image[i] = math.sin(image[i] + i * 0.1 + k)
        k += 1
    return torch.tensor(image)


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    x = torch.empty(256)
    for step in range(24):
        if rank == 0:
            x = render(11 if step in (9, 15) else 0.1)
            dist.send(x, dst=1)
        else:
            dist.recv(x, src=rank - 1)
            x = torch.relu(x)
            if rank == 1:
                dist.send(x, dst=2)
        time.sleep(0.15)
        if rank == 2 and step % 3 == 0:
            print(f"step {step}: output {x.mean():.4f}")
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
