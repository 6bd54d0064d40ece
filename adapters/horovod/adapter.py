"""Horovod's adapter: what its workers expect of `horovodrun`, without Horovod (pure).

Every node has one more process beside its workers (`service.py`), where they find each other, and by which those of
`hvd.elastic` keep their process when the membership changes.
"""

from collections.abc import Mapping, Sequence
from itertools import groupby
from pathlib import Path

from ..contract import Hint, Round, Service, Worker
from ..plain import COLLECTIVES, Plain
from .rank_assignment import RANK_VARIABLES, assign, hostname

SERVICE = "rendezvous"
READY_SECONDS = 60.0
"""Without its service no worker gets anywhere."""

TIMEOUT = "HOROVOD_GLOO_TIMEOUT_SECONDS"
TIMEOUT_SECONDS = 10
"""After so long a worker takes a silent peer for lost, unless the user says otherwise. Horovod's own 30 is longer than
anybody has to wait here: workers begin to connect only when all of them are there."""

ONE_ROLE = "--framework=horovod has all workers in one role: leave --roles out"

_FOREIGN = ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "PMI_RANK", "PMI_SIZE")
"""By these a worker would take itself for one of another launcher's."""


class Horovod(Plain):
    """Gives workers the environment that `horovodrun` with gloo gives them, and a rendezvous."""

    name = "horovod"
    needs = ("horovod",)
    port = "rendezvous of Horovod"
    worker_ports = 1  # only so that all know how many workers each node has
    standby = False  # a worker asks for its rank in `hvd.init`, and has to have one by then
    state_from_rank_0 = True
    per_worker = frozenset([*RANK_VARIABLES, "HOROVOD_GLOO_IFACE", "HOROVOD_GLOO_RENDEZVOUS_PORT"])
    consequences = (*COLLECTIVES, r"Horovod has been shut down", r"HTTP request failed", r"\[gloo")
    hints = (
        Hint(
            r"No module named '?horovod|Extension horovod\.\w+ has not been built",
            "Horovod is not installed in the workers' Python, or not built for this framework: run "
            "`horovodrun --check-build` there",
        ),
    )

    def environment(self, round: Round, worker: Worker, inherited: Mapping[str, str]) -> Mapping[str, str | None]:
        """Where the worker stands, and where its node's rendezvous is."""
        if worker.role_world_size not in (0, round.world_size):
            raise ValueError(ONE_ROLE)
        interface, *ports = round.services.get(SERVICE, "").split() or [""]  # as the service has said
        here = assign(worker.rank, worker.local_rank, worker.node_rank, _workers(round, worker))
        given: dict[str, str | None] = {
            **here.variables,
            "HOROVOD_HOSTNAME": hostname(worker.node or "localhost"),
            "HOROVOD_CONTROLLER": "gloo",
            "HOROVOD_CPU_OPERATIONS": "gloo",
            "HOROVOD_ELASTIC": "1",
            "HOROVOD_GLOO_RENDEZVOUS_ADDR": "127.0.0.1",
            "HOROVOD_GLOO_RENDEZVOUS_PORT": next(iter(ports[worker.local_rank :]), None),
            "HOROVOD_GLOO_IFACE": inherited.get("HOROVOD_GLOO_IFACE", interface.removeprefix("-") or None),
            TIMEOUT: inherited.get(TIMEOUT, str(TIMEOUT_SECONDS)),
            "MASTER_PORT": None,  # it is the rendezvous'
        }
        return given | dict.fromkeys(_FOREIGN)

    def role_options(self, roles: Mapping[str, int]) -> Mapping[str, str]:
        """Raises ValueError: all of Horovod's workers are alike."""
        raise ValueError(ONE_ROLE)

    def services(self, round: Round) -> Sequence[Service]:
        """One on every node, for as long as the job."""
        program = str(Path(__file__).with_name("service.py"))
        return (Service(SERVICE, (program,), "job", "every", READY_SECONDS, between_nodes=True),)


def _workers(round: Round, worker: Worker) -> list[int]:
    """How many workers each node has. Where nobody has said yet, as many as this one."""
    if not round.peers:
        return [worker.local_world_size] * max(round.nodes, worker.node_rank + 1)
    return [len(list(some)) for _, some in groupby(round.peers, key=lambda peer: peer.node)]
