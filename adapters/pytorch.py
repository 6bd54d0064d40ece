"""The former name of `elastic_run.torch`; scripts that import it keep working."""

from .client.commits import StateLost
from .torch.checkpoint import Checkpoint
from .torch.leased_batches import ElasticIterableDataset, ElasticLoader, Records
from .torch.lockstep_batches import ElasticBatchSampler
from .torch.state import Attempt, HostsUpdated, State, run

__all__ = [
    "Attempt",
    "Checkpoint",
    "ElasticBatchSampler",
    "ElasticIterableDataset",
    "ElasticLoader",
    "HostsUpdated",
    "Records",
    "State",
    "StateLost",
    "run",
]
