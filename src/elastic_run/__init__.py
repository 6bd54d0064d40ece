"""Start any training script on any number of machines, and let the number change while it runs.

    launch, LaunchFailed    a function as an elastic job, instead of the command `elastic-run`
    context, Context        rank, world size and round of this worker
    is_current_round        whether this worker's round is still the job's; ask before a checkpoint is replaced
    rounds, Rounds          one context after the other, for a worker that keeps its process
    data                    shards of a dataset that workers lease
    features                what columns become for a model: numbers, categories, sequences, texts
    jax                     JAX: joins a worker to the other processes of its round
    models                  a model in four functions: what its file calls to run by itself
    servers                 parameter servers: how the rows of a table begin, and follow their gradients
    tensorflow              TensorFlow: a `tf.data` dataset of leased shards, and checkpoints of model and position
    torch                   PyTorch: samplers, datasets, a loader, and state that outlives a membership change
    xgboost                 XGBoost: where the tracker of this worker's round is
    trace                   the script's own events in the job's trace
    exceptions              every error, under `ElasticRunError`
    compat                  names of other launchers: `elastic_launch`

Importing this package loads nothing heavy: each name loads its module at first use.
"""

from importlib import import_module
from typing import TYPE_CHECKING

from .rendezvous.version import VERSION as __version__

if TYPE_CHECKING:
    from . import compat, data, exceptions, features, jax, models, servers, tensorflow, torch, trace, xgboost
    from .adapters.client.context import Context, context
    from .adapters.client.current_round import is_current_round
    from .adapters.client.rounds import Rounds, rounds
    from .exceptions import LaunchFailed
    from .launcher.launch import launch

__all__ = [
    "Context",
    "LaunchFailed",
    "Rounds",
    "__version__",
    "compat",
    "context",
    "data",
    "exceptions",
    "features",
    "is_current_round",
    "jax",
    "launch",
    "models",
    "rounds",
    "servers",
    "tensorflow",
    "torch",
    "trace",
    "xgboost",
]

_HOMES = {
    "Context": ".adapters.client.context",
    "LaunchFailed": ".exceptions",
    "Rounds": ".adapters.client.rounds",
    "context": ".adapters.client.context",
    "is_current_round": ".adapters.client.current_round",
    "launch": ".launcher.launch",
    "rounds": ".adapters.client.rounds",
}
"""The module that each name is loaded from; the other public names are modules."""


def __getattr__(name: str) -> object:
    if name in _HOMES:
        found: object = getattr(import_module(_HOMES[name], __name__), name)
    elif name in __all__:
        found = import_module(f".{name}", __name__)
    else:
        raise AttributeError(f"module 'elastic_run' has no attribute {name!r}")
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    return sorted(__all__)
