"""JAX's adapter: workers for which `jax.distributed.initialize()` needs no arguments (pure, without JAX).

JAX finds the number and the ranks of its processes by itself in a few environments; the variables of Open MPI's are the
ones that it looks for first. The address it reads from a variable of its own.
"""

import os
from collections.abc import Mapping, Sequence
from pathlib import Path

from ...rendezvous.store.endpoint import authority
from ..contract import Hint, Round, Service, Worker
from ..plain import COLLECTIVES, Plain

COORDINATOR = "ELASTIC_RUN_JAX_COORDINATOR"
"""The launcher's variable that says who runs the coordination service: "worker" is rank 0, anything else a process of
its own beside the workers."""

ADDRESS = "JAX_COORDINATOR_ADDRESS"
_BIND = "JAX_COORDINATOR_BIND_ADDRESS"
_DEVICES = "JAX_LOCAL_DEVICE_IDS"
_SIZE, _RANK, _LOCAL_RANK = "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_LOCAL_RANK"


class Jax(Plain):
    """Tells JAX's processes where they meet, and keeps the service where they do."""

    name = "jax"
    needs = ("jax",)
    port = ADDRESS
    per_worker = frozenset([ADDRESS, _SIZE, _RANK, _LOCAL_RANK])
    consequences = (
        *COLLECTIVES,
        r"JAX distributed service detected fatal errors",
        r"CoordinationService",
        r"(failed to connect to all addresses|Barrier timed out)",
    )
    hints = (
        Hint(
            r"RESOURCE_EXHAUSTED.*[Oo]ut of memory",
            "the accelerator's memory is full: try a smaller batch, and look for another process that uses it "
            "(XLA_PYTHON_CLIENT_PREALLOCATE=false where workers share a device)",
        ),
        Hint(
            r"distributed\.initialize should only be called once|must be called before any JAX calls",
            "call jax.distributed.initialize() once, before anything that asks JAX for a device",
        ),
    )

    def environment(self, round: Round, worker: Worker, inherited: Mapping[str, str]) -> Mapping[str, str | None]:
        """What `jax.distributed.initialize` reads."""
        variables: dict[str, str | None] = {
            ADDRESS: authority(round.master_addr, round.master_port),
            "OMPI_MCA_orte_hnp_uri": "elastic-run",  # by this JAX knows Open MPI; it uses the value without an address
            _SIZE: str(round.world_size),
            _RANK: str(worker.rank),
            _LOCAL_RANK: "0" if worker.own_device else str(worker.local_rank),
        }
        if _coordinator_is_a_service():
            # JAX's process 0 always starts a coordination service: here it gets one that nobody uses.
            variables[_BIND] = "[::1]:0" if ":" in round.master_addr else "127.0.0.1:0"
        devices = self.accelerators(inherited).count
        if worker.local_world_size == 1 and devices > 1 and not worker.own_device and _DEVICES not in inherited:
            variables[_DEVICES] = ",".join(map(str, range(devices)))  # else JAX takes one, as for the first of many
        return variables

    def services(self, round: Round) -> Sequence[Service]:
        """The coordination service, so that rank 0 may be lost like any other worker."""
        if not _coordinator_is_a_service():
            return ()
        # By its path: the workers' Python need not have elastic-run.
        program = str(Path(__file__).with_name("coordinator.py"))
        return (Service("coordinator", (program,), ready_seconds=60.0),)


def _coordinator_is_a_service() -> bool:
    return os.environ.get(COORDINATOR) != "worker"
