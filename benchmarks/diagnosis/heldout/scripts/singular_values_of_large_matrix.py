"""Projects the weights on their first singular vectors now and then."""

import time

import torch
import torch.distributed as dist


def project(w, keep):
    u, s, v = torch.linalg.svd(w)
    return (u[:, :keep] * s[:keep]) @ v[:keep]


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    w = torch.randn(2400, 2400)
    for step in range(24):
        g = torch.randn(2400)
        dist.all_reduce(g)
        w += 0.001 * g
        time.sleep(0.15)
        if step == 12:
            if rank == 2:
                w = project(w, 64)
            dist.broadcast(w, src=2)
        if step % 4 == 0:
            print(f"rank {rank} step {step} |w| {w.norm():.2f}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
