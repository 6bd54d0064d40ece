"""This process's rank in torch's default group; without a group, as the launcher's environment says."""

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


def device_of_group() -> torch.device:
    """Where the default group wants its tensors: memory where it can, else the current accelerator."""
    kinds = [part.partition(":")[0] for part in dist.get_backend_config().split(",")]
    return torch.device("cpu" if "cpu" in kinds else kinds[0])
