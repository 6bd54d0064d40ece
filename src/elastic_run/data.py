"""Leased data: shards of a dataset, of which each rank asks for as many as it can do.

    for shard in elastic_run.data.shards("train", 1_000_000, shard_size=1000, epochs=3):
        for index in shard.indices:
            ...
        shard.done()

No framework is needed. For batches of PyTorch see `elastic_run.torch`.
"""

from .adapters.client.shards import Part, Shard, Shards, shards

__all__ = ["Part", "Shard", "Shards", "shards"]


def __dir__() -> list[str]:
    return sorted(__all__)
