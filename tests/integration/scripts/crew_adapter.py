"""An adapter for tests: PyTorch's environment, where all workers of the round are, and services beside them."""

import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path

from elastic_run.adapters.contract import Round, Service, Worker
from elastic_run.adapters.torch.adapter import Torch

SERVICE = str(Path(__file__).with_name("crew_service.py"))


class Crew(Torch):
    """Two ports for each worker; CREW_SERVICES has a word for each service: `name lifetime where behaviour`."""

    name = "crew"
    worker_ports = 2
    per_worker = Torch.per_worker | {"CREW_PEERS"}

    def environment(self, round: Round, worker: Worker, inherited: Mapping[str, str]) -> Mapping[str, str | None]:
        """CREW_PEERS: for each rank its host and ports."""
        peers = [[peer.host, *peer.ports] for peer in round.peers]
        return {**super().environment(round, worker, inherited), "CREW_PEERS": json.dumps(peers)}

    def services(self, round: Round) -> Sequence[Service]:
        """Those that the test wants."""
        wanted = [words.split() for words in os.environ.get("CREW_SERVICES", "").split(",") if words]
        return [
            Service(name, (SERVICE, name, behaviour), lifetime, where, 1.0 if behaviour == "silent" else 60.0)
            for name, lifetime, where, behaviour in wanted
        ]
