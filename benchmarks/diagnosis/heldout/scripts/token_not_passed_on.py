"""A token goes round the ring of ranks; one rank returns early, and the token stays with it."""

import time

import torch
import torch.distributed as dist


def pass_token(rank: int, world: int, token: torch.Tensor, tired: bool) -> None:
    """Each adds its own and hands it on; rank 0 has the sum at the end."""
    if rank > 0:
        dist.recv(token, src=rank - 1)
    if tired:
        return
    token += rank
    dist.send(token, dst=(rank + 1) % world)
    if rank == 0:
        dist.recv(token, src=world - 1)


def main() -> None:
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    for lap in range(1_000_000):
        token = torch.zeros(1)
        for _ in range(5):
            dist.all_reduce(torch.ones(4))
            time.sleep(0.1)
        pass_token(rank, world, token, tired=rank == 1 and lap == 7)
        if rank == 0:
            print("lap", lap, "token", token.item(), flush=True)


if __name__ == "__main__":
    main()
