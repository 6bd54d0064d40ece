"""Where a worker stands, as its launcher's environment says; a world of one without a launcher."""

import os
from collections.abc import Mapping
from dataclasses import dataclass

from ...rendezvous.base.errors import ElasticRunError

RANK_VARIABLES = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE")
NODE = "GROUP_RANK"
ROUND = "ELASTIC_RUN_ROUND"
LARGEST_WORLD = "ELASTIC_RUN_MAX_WORLD_SIZE"
JOB = "ELASTIC_RUN_JOB_ID"
RESTART_COUNT = "ELASTIC_RUN_RESTART_COUNT"
"""Not set for PyTorch, where torchrun's names say the same."""

AGENT = "ELASTIC_RUN_AGENT"
"""The variable that names the agent's socket: `@` and its abstract name."""

SCALE_UP = "ELASTIC_RUN_SCALE_UP"
"""The variable that says when joining nodes are admitted: the launcher's --scale-up."""


class BadEnvironment(ElasticRunError, ValueError, public=True):
    """The environment says where this worker stands, but not all of it, or what cannot be."""


@dataclass(frozen=True, slots=True)
class Context:
    """The rank assignment of one worker in the current round of its job.

    Attributes:
        rank: of this worker, from 0 to before `world_size`.
        world_size: how many workers train together.
        local_rank: of this worker on its node, from 0.
        local_world_size: how many workers its node has.
        node: the number of its node, from 0 (torchrun's GROUP_RANK).
        round: the number of the rendezvous round, from 1; 0 without elastic-run.
        restart_count: worker failures before this round that counted against --max-restarts.
        job_id: --rdzv-id; empty without a launcher.
    """

    rank: int
    world_size: int
    local_rank: int
    local_world_size: int
    node: int
    round: int
    restart_count: int
    job_id: str


def context(environment: Mapping[str, str] | None = None) -> Context:
    """Rank, world size and round of this worker; any launcher that sets torchrun's variables will do, or none.

    The value does not change. A worker that keeps its process (`elastic_run.rounds`, `elastic_run.torch.run`) calls
    this again in its next round.

    Args:
        environment: None: this process's own.

    Returns:
        what the environment says; without a launcher, a world of one.

    Raises:
        elastic_run.exceptions.BadEnvironment: only some of the variables are set, or one is no number that can be.
    """
    given = os.environ if environment is None else environment
    set_ = [name for name in RANK_VARIABLES if name in given]
    if not set_:
        return Context(0, 1, 0, 1, 0, 0, 0, "")
    if missing := [name for name in RANK_VARIABLES if name not in given]:
        raise BadEnvironment(
            f"the environment has {' and '.join(set_)} but no {' and '.join(missing)}: start the script with a "
            "launcher, which sets all of them, or set none of them for a world of one"
        )
    rank, size, local_rank, local_size = (_number(given, name) for name in RANK_VARIABLES)
    for name, value, limit, of in (
        ("RANK", rank, size, "WORLD_SIZE"),
        ("LOCAL_RANK", local_rank, local_size, "LOCAL_WORLD_SIZE"),
    ):
        if value >= limit:
            raise BadEnvironment(f"{name}={value} is not a rank below {of}={limit}")
    return Context(
        rank,
        size,
        local_rank,
        local_size,
        _number(given, NODE, str(rank // local_size)),
        _number(given, ROUND, "0"),
        _number(given, RESTART_COUNT if RESTART_COUNT in given else "TORCHELASTIC_RESTART_COUNT", "0"),
        given.get(JOB, given.get("TORCHELASTIC_RUN_ID", "")),
    )


def largest_world(environment: Mapping[str, str] | None = None) -> int:
    """How many workers the job may come to have; 0 where the launcher does not tell."""
    return _number(os.environ if environment is None else environment, LARGEST_WORLD, "0")


def _number(given: Mapping[str, str], name: str, default: str | None = None) -> int:
    text = given[name] if default is None else given.get(name, default)
    if not (text.isascii() and text.isdigit()):
        raise BadEnvironment(f"{name}={text!r} in the environment is not a number of 0 or more")
    return int(text)
