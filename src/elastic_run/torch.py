"""PyTorch: samplers, datasets and a loader for elastic data, checkpoints, and state that outlives a membership change.

    from elastic_run import torch as elastic

Importing this loads torch.
"""

from .adapters.client.commits import StateLost as StateLost  # its public path is elastic_run.exceptions.StateLost
from .adapters.torch.attempt import Attempt, HostsUpdated
from .adapters.torch.checkpoint import Checkpoint
from .adapters.torch.dense_parameters import on_servers
from .adapters.torch.embedding import Embedding
from .adapters.torch.leased_batches import ElasticIterableDataset, ElasticLoader, Records
from .adapters.torch.lockstep_batches import ElasticBatchSampler
from .adapters.torch.state import State, run

__all__ = [
    "Attempt",
    "Checkpoint",
    "ElasticBatchSampler",
    "ElasticIterableDataset",
    "ElasticLoader",
    "Embedding",
    "HostsUpdated",
    "Records",
    "State",
    "on_servers",
    "run",
]


def __dir__() -> list[str]:
    return sorted(__all__)
