"""PyTorch: samplers, datasets and a loader for elastic data, and state that survives a change of membership.

    from elastic_run import torch as elastic

Importing this loads torch.
"""

from .adapters.client.commits import StateLost as StateLost  # its public path is elastic_run.exceptions.StateLost
from .adapters.torch.leased_batches import ElasticIterableDataset, ElasticLoader, Records
from .adapters.torch.lockstep_batches import ElasticBatchSampler
from .adapters.torch.state import Attempt, HostsUpdated, State, run

__all__ = [
    "Attempt",
    "ElasticBatchSampler",
    "ElasticIterableDataset",
    "ElasticLoader",
    "HostsUpdated",
    "Records",
    "State",
    "run",
]


def __dir__() -> list[str]:
    return sorted(__all__)
