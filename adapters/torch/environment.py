"""The environment that torchrun 2.13 gives its workers, so that a PyTorch script finds what it knows (pure).

Source: `torch.distributed.elastic.agent.server.local_elastic_agent` and `torch.distributed.run`. Two differences,
both on purpose: `TORCHELASTIC_USE_AGENT_STORE` is False, because the launcher hosts no torch store (rank 0 does, new
in every round, so that no round reads another's leftovers); and `TORCHELASTIC_RESTART_COUNT` comes from the round, so
it is equal on all nodes. Added are the number of the round and how many workers the job may come to have.
"""

import signal
from collections.abc import Mapping
from dataclasses import dataclass

from ..client.context import AGENT, LARGEST_WORLD, ROUND, SCALE_UP
from ..client.script_trace import TRACE, TRACE_NODE

DEVICES = "CUDA_VISIBLE_DEVICES"

PER_WORKER = frozenset(
    [
        "RANK",
        "LOCAL_RANK",
        "WORLD_SIZE",
        "LOCAL_WORLD_SIZE",
        "GROUP_RANK",
        "GROUP_WORLD_SIZE",
        "ROLE_RANK",
        "ROLE_WORLD_SIZE",
        "MASTER_ADDR",
        "MASTER_PORT",
        "TORCHELASTIC_RESTART_COUNT",
        "TORCHELASTIC_MAX_RESTARTS",
        "TORCHELASTIC_ERROR_FILE",
        DEVICES,
        ROUND,
        AGENT,
    ]
)
"""The variables that are not the same for all workers of a node in all rounds, often are made so by a script (the
devices), or are known only once the agent listens."""


@dataclass(frozen=True, slots=True)
class RankAssignment:
    """Where one worker stands in its round; ranks and sizes count workers, group ranks count nodes.

    Attributes:
        round: its number; 0 is not told to the worker.
        largest_world: how many workers the job may come to have; 0 is not told.
        agent: where the worker can ask its agent; empty is not told.
        tells_saves: the job wants to know of checkpoints.
        trace: the file that the launcher traces to; empty is not told.
        node: the node's name there.
    """

    job: str
    rank: int
    local_rank: int
    world_size: int
    local_world_size: int
    group_rank: int
    group_size: int
    role: str
    role_rank: int
    role_world_size: int
    master_addr: str
    master_port: int
    restart_count: int
    max_restarts: int
    error_file: str
    signals: tuple[signal.Signals, ...] = ()
    round: int = 0
    largest_world: int = 0
    agent: str = ""
    tells_saves: bool = False
    trace: str = ""
    node: str = ""


def worker_environment(
    inherited: Mapping[str, str], assignment: RankAssignment, *, virtual_local_rank: bool = False
) -> dict[str, str]:
    """The whole environment of one worker.

    Args:
        inherited: the launcher's own environment.
        assignment: where the worker stands.
        virtual_local_rank: each worker sees only its own GPU, as device 0, and LOCAL_RANK is 0.

    Raises ValueError where there are fewer visible GPUs than workers.
    """
    environment = dict(inherited)
    environment.update(
        RANK=str(assignment.rank),
        LOCAL_RANK=str(assignment.local_rank),
        WORLD_SIZE=str(assignment.world_size),
        LOCAL_WORLD_SIZE=str(assignment.local_world_size),
        GROUP_RANK=str(assignment.group_rank),
        GROUP_WORLD_SIZE=str(assignment.group_size),
        ROLE_NAME=assignment.role,
        ROLE_RANK=str(assignment.role_rank),
        ROLE_WORLD_SIZE=str(assignment.role_world_size),
        MASTER_ADDR=assignment.master_addr,
        MASTER_PORT=str(assignment.master_port),
        TORCHELASTIC_RESTART_COUNT=str(assignment.restart_count),
        TORCHELASTIC_MAX_RESTARTS=str(assignment.max_restarts),
        TORCHELASTIC_RUN_ID=assignment.job,
        TORCHELASTIC_USE_AGENT_STORE="False",
        TORCHELASTIC_ERROR_FILE=assignment.error_file,
        TORCHELASTIC_SIGNALS_TO_HANDLE=",".join(number.name for number in assignment.signals),
    )
    for name, number in ((ROUND, assignment.round), (LARGEST_WORLD, assignment.largest_world)):
        if number:
            environment[name] = str(number)
    for name, value in (
        (AGENT, assignment.agent),
        (SCALE_UP, "commit" if assignment.tells_saves else ""),
        (TRACE, assignment.trace),
        (TRACE_NODE, assignment.node if assignment.trace else ""),
    ):
        environment.pop(name, None)  # that of a launcher around this one
        if value:
            environment[name] = value
    environment.setdefault("TORCH_NCCL_ASYNC_ERROR_HANDLING", "1")
    if assignment.local_world_size > 1:
        # Several workers would each start one thread per core and slow each other down.
        environment.setdefault("OMP_NUM_THREADS", "1")
    if virtual_local_rank:
        environment["LOCAL_RANK"] = "0"
        environment["CUDA_VISIBLE_DEVICES"] = _own_device(inherited.get("CUDA_VISIBLE_DEVICES"), assignment.local_rank)
    return environment


def _own_device(visible: str | None, local_rank: int) -> str:
    if visible is None:
        return str(local_rank)
    devices = [device.strip() for device in visible.split(",") if device.strip()]
    if local_rank >= len(devices):
        raise ValueError(
            f"CUDA_VISIBLE_DEVICES={visible} has {len(devices)} devices, and --virtual-local-rank gives each worker "
            f"one of its own: there is none for worker {local_rank}; start fewer with --nproc-per-node"
        )
    return devices[local_rank]
