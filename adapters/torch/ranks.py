"""This process's rank in torch's default group; without a group, as the launcher's environment says."""

from collections.abc import Sequence

import torch
import torch.distributed as dist

from ..client.context import context


def initialised() -> bool:
    """Whether there is a default group."""
    return dist.is_available() and dist.is_initialized()


def rank_and_size() -> tuple[int, int]:
    """Rank and world size."""
    if initialised():
        return dist.get_rank(), dist.get_world_size()
    here = context()
    return here.rank, here.world_size


def gathered(values: Sequence[int], size: int) -> list[list[int]]:
    """These whole numbers of each of the `size` ranks. Collective."""
    kinds = [part.partition(":")[0] for part in dist.get_backend_config().split(",")]
    device = "cpu" if "cpu" in kinds else kinds[0]  # memory where the group can, else the current accelerator
    own = torch.tensor(values, dtype=torch.int64, device=device)
    found = [torch.empty_like(own) for _ in range(size)]
    dist.all_gather(found, own)  # pyright: ignore[reportUnknownMemberType]  # half of it has no types in torch
    return [[int(value) for value in row.cpu()] for row in found]
