"""Parameter servers: tables of embeddings beside the workers of `elastic-run --servers=1`.

    from elastic_run import servers
    from elastic_run import torch as elastic

    user = elastic.Embedding("user", dim=16, optimizer=servers.Adagrad(lr=0.02))

Importing this loads no framework.
"""

from .adapters.servers.specs import FTRL, SGD, Adagrad, Adam, Momentum, Normal, Uniform, Zeros

__all__ = ["FTRL", "SGD", "Adagrad", "Adam", "Momentum", "Normal", "Uniform", "Zeros"]


def __dir__() -> list[str]:
    return sorted(__all__)
