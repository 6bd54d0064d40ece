"""The adapter for no framework in particular (`--framework=none`), and what others inherit from (pure)."""

from collections.abc import Mapping, Sequence

from . import accelerators
from .contract import Accelerators, Hint, ImportsAhead, Meeting, Round, Service, Worker

COLLECTIVES = (r"gloo(?!::\w+: invalid)", r"nccl", r"mpi_", r"ucc\b", r"HorovodInternalError")
"""Words of the libraries by which workers exchange tensors: a worker with an error there has lost a peer, unless
it is about the script's own tensors. Several frameworks use each of them, and so may a script without one."""


GLOO_SECONDS = 0.25
"""gloo forgets a send that fails, and the receiver waits until the group's time-out. So a send must not fail before
the worker has read that its process group is at its end, which gloo does within milliseconds, or later."""


class Plain:
    """Tells a script who it is, and nothing that only one framework knows."""

    name: str = "none"
    needs: tuple[str, ...] = ()
    port: str = "MASTER_PORT"
    meets_through: Meeting | None = None
    half_open_seconds: float = GLOO_SECONDS
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
