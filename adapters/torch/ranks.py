"""This process's rank in torch's default group; without a group, as the launcher's environment says."""

import array
from collections.abc import Sequence

import torch
import torch.distributed as dist

from ..client.checkpoints import BadCheckpoint
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


def gather_rows(values: list[int]) -> list[list[int]]:
    """These whole numbers of each rank. Collective. Raises BadCheckpoint."""
    _, size = rank_and_size()
    if size == 1:
        return [values]
    if not initialised():
        raise BadCheckpoint(
            f"a Checkpoint with memory=... of {size} ranks compares them, and this process has no process group: call "
            "torch.distributed.init_process_group() before restore() and commit()"
        )
    return gathered(values, size)


def gather_texts(text: str) -> list[str]:
    """The text of each rank. Collective. Raises BadCheckpoint."""
    data = text.encode()
    sizes = [size for (size,) in gather_rows([len(data)])]
    words = [*memoryview(data.ljust(-(-max(sizes) // 8) * 8, b"\0")).cast("q")]
    rows = gather_rows(words) if words else [words] * len(sizes)
    return [array.array("q", row).tobytes()[:size].decode() for row, size in zip(rows, sizes, strict=True)]
