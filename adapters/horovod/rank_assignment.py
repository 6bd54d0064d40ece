"""Who a worker is in Horovod's words, and what its node and its scopes are called (pure)."""

import hashlib
import re
from collections.abc import Mapping, Sequence
from typing import NamedTuple

RANK_VARIABLES = (
    "HOROVOD_RANK",
    "HOROVOD_SIZE",
    "HOROVOD_LOCAL_RANK",
    "HOROVOD_LOCAL_SIZE",
    "HOROVOD_CROSS_RANK",
    "HOROVOD_CROSS_SIZE",
)
"""In the order in which a worker that initializes itself again is told their values."""


class RankAssignment(NamedTuple):
    """One worker's ranks and sizes.

    Attributes:
        rank, size: among all workers.
        local_rank, local_size: among those of its node.
        cross_rank, cross_size: among the workers of the same local rank, one of each node that has so many.
    """

    rank: int
    size: int
    local_rank: int
    local_size: int
    cross_rank: int
    cross_size: int

    @property
    def variables(self) -> dict[str, str]:
        """In the environment of a worker."""
        return dict(zip(RANK_VARIABLES, map(str, self), strict=True))

    @property
    def answer(self) -> bytes:
        """To a worker that asks where it stands now."""
        return ",".join(map(str, self)).encode()


def read_assignment(variables: Mapping[str, str]) -> RankAssignment:
    """The rank assignment that an environment holds. Raises KeyError, ValueError."""
    return RankAssignment(*(int(variables[name]) for name in RANK_VARIABLES))


def assign(rank: int, local_rank: int, node: int, workers: Sequence[int]) -> RankAssignment:
    """A worker's rank assignment.

    Args:
        rank: among all workers.
        local_rank: among those of its node.
        node: the rank of its node.
        workers: how many each node has, by its rank.
    """
    with_one = [number for number, count in enumerate(workers) if count > local_rank]
    return RankAssignment(rank, sum(workers), local_rank, workers[node], with_one.index(node), len(with_one))


def hostname(node: str) -> str:
    """What HOROVOD_HOSTNAME says: the node's name, as it can stand in a URL. Other names of nodes give other ones."""
    name = re.sub(r"[^A-Za-z0-9._-]", "-", node)
    return name if name == node else f"{name}-{hashlib.sha256(node.encode()).hexdigest()[:12]}"
