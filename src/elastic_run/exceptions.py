"""Every error that elastic-run raises to a script, or to a caller of `launch`, under one base.

    ElasticRunError
    ├── UsageError                          launch: a flag, the function or an argument cannot be used
    ├── LaunchFailed       (RuntimeError)   launch: the job did not succeed
    ├── BadEnvironment     (ValueError)     the launcher's environment is incomplete
    ├── AgentGone          (ConnectionError)    the launcher of this worker has ended
    ├── AgentTimeout       (TimeoutError)   the launcher of this worker does not answer
    ├── NoAgent         (RuntimeError)   rounds: there is no agent that could give another rank
    ├── ShardsError                         data: leased shards
    │   ├── BadDataset     (ValueError)     the script declares what cannot be
    │   ├── BadShardsState    (ValueError)     the checkpoint is of another dataset, or damaged
    │   ├── ShardsMisused        (RuntimeError)   the script calls what cannot be called, or not now
    │   ├── ShardsNotDone        (RuntimeError)   some shards are not done; the loop may go on afterwards
    │   ├── ShardsRefused        (RuntimeError)   the ranks contradict each other, or an earlier run of the job
    │   ├── NoLedger       (RuntimeError)   the launcher has no ledger that all ranks could ask
    │   ├── BadSource      (ValueError)     streams: the source is declared as it cannot be
    │   ├── SourceAway     (ConnectionError)    streams: the source does not answer now, and is asked again
    │   ├── OffsetsGone    (RuntimeError)   streams: the source has records no more that were not used
    │   └── RoundOver      (RuntimeError)   the job is in another round, and the launcher ends this worker
    ├── ServersError                        servers: tables of embeddings
    │   ├── TableMisused   (ValueError)     the script declares or uses a table as it cannot be
    │   ├── ServerGone     (ConnectionError)    a server does not answer
    │   ├── ServerFull     (MemoryError)    the rows do not fit into the server's memory
    │   └── PushRefused    (RuntimeError)   the records are not this worker's any more, or not in their order
    ├── ReadersError                        data.open: files of records
    │   ├── BadFiles       (ValueError)     there are none, they do not fit together, or nothing can read them
    │   ├── BadRecords     (ValueError)     a record does not fit the columns, or too many do not
    │   └── FileChanged    (RuntimeError)   a file is not the one any more that was opened
    ├── BadFeatures        (ValueError)     features: they cannot be as they are declared, or a column is missing
    ├── BadModel           (ValueError)     models: a model file, or what it is to do, cannot be used
    ├── SamplerError                       torch: ElasticBatchSampler
    │   ├── BadSampler        (ValueError)     the script asks for what cannot be
    │   ├── WorldSizeRefused   (ValueError)     so many ranks cannot train like this
    │   ├── BadSamplerState       (ValueError)     the checkpoint is of another dataset, or damaged
    │   ├── RanksDiffer    (ValueError)     the ranks disagree on data or position
    │   └── SamplerMisused      (RuntimeError)   the script commits what it has not done
    ├── BadCheckpoint      (ValueError)     a checkpoint is damaged, or not the same on all ranks
    ├── StateLost          (RuntimeError)   torch: no living worker has a committed step
    ├── UnsupportedState              (TypeError)      torch: a State is given what cannot travel
    └── ProcessGroupExists                         torch: the script made process groups before `run` could

`elastic_run.torch.HostsUpdated` is none of them: it is no error, and no `Exception`, so that `except Exception` in a
training loop lets it by. Arguments of the wrong type or value raise Python's TypeError and ValueError.
"""

from .adapters.client.channel import AgentGone, AgentTimeout
from .adapters.client.checkpoints import BadCheckpoint
from .adapters.client.commits import StateLost
from .adapters.client.context import BadEnvironment
from .adapters.client.ledger_client import RoundOver, ShardsMisused, ShardsNotDone, ShardsRefused
from .adapters.client.rounds import NoAgent
from .adapters.client.whose_ledger import NoLedger
from .adapters.features.errors import BadFeatures
from .adapters.models.errors import BadModel
from .adapters.readers.errors import BadFiles, BadRecords, FileChanged, ReadersError
from .adapters.servers.errors import PushRefused, ServerFull, ServerGone, ServersError, TableMisused
from .adapters.streams.contract import BadSource, OffsetsGone, SourceAway
from .adapters.torch.errors import ProcessGroupExists, UnsupportedState
from .launcher.errors import LaunchFailed, UsageError
from .master.data.lockstep import (
    BadSampler,
    BadSamplerState,
    RanksDiffer,
    SamplerError,
    SamplerMisused,
    WorldSizeRefused,
)
from .master.data.shard import BadDataset, BadShardsState, ShardsError
from .rendezvous.base.errors import ElasticRunError

__all__ = [
    "AgentGone",
    "AgentTimeout",
    "BadCheckpoint",
    "BadDataset",
    "BadEnvironment",
    "BadFeatures",
    "BadFiles",
    "BadModel",
    "BadRecords",
    "BadSampler",
    "BadSamplerState",
    "BadShardsState",
    "BadSource",
    "ElasticRunError",
    "FileChanged",
    "LaunchFailed",
    "NoAgent",
    "NoLedger",
    "OffsetsGone",
    "ProcessGroupExists",
    "PushRefused",
    "RanksDiffer",
    "ReadersError",
    "RoundOver",
    "SamplerError",
    "SamplerMisused",
    "ServerFull",
    "ServerGone",
    "ServersError",
    "ShardsError",
    "ShardsMisused",
    "ShardsNotDone",
    "ShardsRefused",
    "SourceAway",
    "StateLost",
    "TableMisused",
    "UnsupportedState",
    "UsageError",
    "WorldSizeRefused",
]


def __dir__() -> list[str]:
    return sorted(__all__)
