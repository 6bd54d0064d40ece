"""TensorFlow's adapter: the cluster as TF_CONFIG, and what its roles are (pure).

Without --roles all workers are of one kind, for MultiWorkerMirroredStrategy. With a `ps` among the roles the strategy
is ParameterServerStrategy.
"""

import json
from collections.abc import Mapping

from ...rendezvous.store.endpoint import authority
from ..contract import Hint, Round, Worker
from ..plain import COLLECTIVES, Plain

CONFIG = "TF_CONFIG"
CHIEF, WORKER, PS, EVALUATOR = ROLES = ("chief", "worker", "ps", "evaluator")
ASIDE = {PS: "counts=no", WORKER: "counts=no"}
"""With parameter servers: these only serve the chief, and wait for it for ever. The job is done when the chief is."""


class TensorFlow(Plain):
    """Tells each worker who all are, in the one variable that TensorFlow reads."""

    name = "tensorflow"
    needs = ("tensorflow",)
    worker_ports = 1
    per_worker = frozenset([CONFIG])
    consequences = (
        *COLLECTIVES,
        r"UnavailableError",
        r"AbortedError",
        r"CancelledError",
        r"DeadlineExceededError",
        r"coordination ?service",
        r"heartbeat timeout",
        r"Collective ops is aborted",
        r"failed to connect to all addresses",
    )
    hints = (
        Hint(
            r"unsupported type \(<class 'tensorflow\.python\.distribute\.values\.PerReplica'>\)",
            "Keras 3 does not train with this strategy: set TF_USE_LEGACY_KERAS=1 and install tf-keras of TensorFlow's "
            "version (pip install --no-deps tf-keras), or write the training loop yourself",
        ),
    )

    def role_options(self, roles: Mapping[str, int]) -> Mapping[str, str]:
        """Which roles the job is not done by. Raises ValueError where they are none of TensorFlow's."""
        if unknown := [name for name in roles if name not in ROLES]:
            raise ValueError(f"TensorFlow has no role {unknown[0]}: it has {', '.join(ROLES)}")
        if roles.get(CHIEF, 1) > 1:
            raise ValueError(f"TensorFlow has one chief, and not up to {roles[CHIEF]}: write {CHIEF}:1")
        if PS in roles and (CHIEF not in roles or WORKER not in roles):
            raise ValueError(f"parameter servers need a chief and workers: write {CHIEF}:1,{PS}:1,{WORKER}:2 or so")
        if CHIEF not in roles and WORKER not in roles:
            raise ValueError(f"no role trains: add {WORKER}:2 or so")
        options = {CHIEF: "nproc=1", EVALUATOR: "counts=no"} | (ASIDE if PS in roles else {})
        return {name: text for name, text in options.items() if name in roles}

    def environment(self, round: Round, worker: Worker, inherited: Mapping[str, str]) -> Mapping[str, str | None]:
        """TF_CONFIG: all addresses by role, and this worker's place among them. An evaluator is in no cluster."""
        if not round.peers:
            return {CONFIG: None}
        cluster: dict[str, list[str]] = {}
        for peer in round.peers:
            if (role := _role(peer.role, round)) != EVALUATOR:
                cluster.setdefault(role, []).append(authority(peer.host, peer.ports[0]))
        if len(cluster.get(CHIEF, ())) > 1:
            raise ValueError("TensorFlow has one chief: start its node with one worker (--role-options=chief:nproc=1)")
        task = {"type": _role(worker.role, round), "index": worker.role_rank}
        return {CONFIG: json.dumps({"cluster": cluster, "task": task})}


def _role(name: str, round: Round) -> str:
    """As TensorFlow calls it: where all have one role, --role may have given it any name."""
    return name if name in ROLES and len({peer.role for peer in round.peers}) > 1 else WORKER
