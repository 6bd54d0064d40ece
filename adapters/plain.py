"""The adapter for no framework in particular (`--framework=none`), and what others inherit from (pure)."""

from collections.abc import Mapping, Sequence

from . import accelerators
from .contract import Accelerators, Hint, ImportsAhead, Round, Service, Worker

COLLECTIVES = (r"gloo", r"nccl", r"mpi_", r"ucc\b", r"HorovodInternalError")
"""Words of the libraries by which workers exchange tensors: whoever has an error there has lost a peer. Several
frameworks use each of them, and so may a script without one."""


class Plain:
    """Tells a script who it is, and nothing that only one framework knows."""

    name: str = "none"
    port: str = "MASTER_PORT"
    meets_through: str = ""
    worker_ports: int = 0
    per_worker: frozenset[str] = frozenset()
    standby: bool = True
    state_from_rank_0: bool = False
    visible_devices: str = accelerators.VISIBLE
    imports_ahead: ImportsAhead = ImportsAhead()
    consequences: tuple[str, ...] = COLLECTIVES
    hints: tuple[Hint, ...] = ()

    def accelerators(self, environ: Mapping[str, str]) -> Accelerators:
        """NVIDIA's GPUs."""
        return Accelerators(accelerators.count_gpus(environ), accelerators.SOUGHT)

    def environment(self, round: Round, worker: Worker, inherited: Mapping[str, str]) -> Mapping[str, str | None]:
        """Nothing beside the plain variables."""
        return {}

    def role_options(self, roles: Mapping[str, int]) -> Mapping[str, str]:
        """All are alike."""
        return {}

    def services(self, round: Round) -> Sequence[Service]:
        """None."""
        return ()
