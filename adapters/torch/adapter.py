"""PyTorch's adapter: what torchrun's users expect of a launcher, without torch (pure).

Source: torchrun 2.13's `torch.distributed.elastic.agent.server.local_elastic_agent` and `torch.distributed.run`. Two
differences, both on purpose: `TORCHELASTIC_USE_AGENT_STORE` is False, because the launcher hosts no torch store (rank 0
does, new in every round, so that no round reads another's leftovers); and `TORCHELASTIC_RESTART_COUNT` comes from the
round, so it is equal on all nodes. RANK, WORLD_SIZE, MASTER_ADDR and their kind every worker has: `environment.py`.
"""

from collections.abc import Mapping

from ..client.context import JOB, RESTART_COUNT
from ..contract import Hint, Meeting, Round, Worker
from ..plain import COLLECTIVES, Plain


class Torch(Plain):
    """Gives workers the environment that torchrun gives them."""

    name = "torch"
    # Its store client tries again only after 0.35 to 0.75 s where rank 0 does not listen yet.
    meets_through = Meeting("torch", later=0.01, held=0.1)
    per_worker = frozenset(
        [
            "ROLE_RANK",
            "ROLE_WORLD_SIZE",
            "TORCHELASTIC_RESTART_COUNT",
            "TORCHELASTIC_MAX_RESTARTS",
            "TORCHELASTIC_ERROR_FILE",
        ]
    )
    consequences = (
        *COLLECTIVES,
        r"DistNetworkError",
        r"DistBackendError",
        r"DistStoreError",
        r"store.*(timed? ?out|closed)",
        r"timed out .*store",
        r"monitoredBarrier",
    )
    hints = (
        Hint(
            r"CUDA out of memory|OutOfMemoryError|CUDA_ERROR_OUT_OF_MEMORY",
            "the accelerator's memory is full: try a smaller batch, and look for another process that uses it",
        ),
    )

    def environment(self, round: Round, worker: Worker, inherited: Mapping[str, str]) -> Mapping[str, str | None]:
        """What torchrun sets beside the plain variables."""
        variables: dict[str, str | None] = {
            "ROLE_RANK": str(worker.role_rank),
            "ROLE_WORLD_SIZE": str(worker.role_world_size),
            "TORCHELASTIC_RESTART_COUNT": str(round.restart_count),
            "TORCHELASTIC_MAX_RESTARTS": str(round.max_restarts),
            "TORCHELASTIC_RUN_ID": round.job,
            "TORCHELASTIC_USE_AGENT_STORE": "False",
            "TORCHELASTIC_ERROR_FILE": worker.error_file,
            "TORCHELASTIC_SIGNALS_TO_HANDLE": ",".join(round.signals),
            # torchrun's names say it, and scripts know those.
            JOB: None,
            RESTART_COUNT: None,
        }
        if "TORCH_NCCL_ASYNC_ERROR_HANDLING" not in inherited:
            variables["TORCH_NCCL_ASYNC_ERROR_HANDLING"] = "1"
        if worker.local_world_size > 1 and "OMP_NUM_THREADS" not in inherited:
            # Several workers would each start one thread per core and slow each other down.
            variables["OMP_NUM_THREADS"] = "1"
        return variables
