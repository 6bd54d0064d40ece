"""An adapter for tests: PyTorch's environment, and where all workers of the round are."""

import json
from collections.abc import Mapping

from elastic_run.adapters.contract import Round, Worker
from elastic_run.adapters.torch.adapter import Torch


class Crew(Torch):
    """Two ports for each worker."""

    name = "crew"
    worker_ports = 2
    per_worker = Torch.per_worker | {"CREW_PEERS"}

    def environment(self, round: Round, worker: Worker, inherited: Mapping[str, str]) -> Mapping[str, str | None]:
        """CREW_PEERS: for each rank its host and ports."""
        peers = [[peer.host, *peer.ports] for peer in round.peers]
        return {**super().environment(round, worker, inherited), "CREW_PEERS": json.dumps(peers)}
