"""TensorFlow: leased data for `tf.data`, checkpoints of model and position, and embeddings on parameter servers.

    import elastic_run.tensorflow

Importing this loads TensorFlow, and not Keras: a script may say first which one it wants.
"""

from typing import TYPE_CHECKING

from .adapters.tensorflow.checkpoint import Checkpoint
from .adapters.tensorflow.dataset import Records, ShardsDataset, shards_dataset

if TYPE_CHECKING:
    from .adapters.tensorflow.embedding import EmbeddingLayer as Embedding
    from .adapters.tensorflow.embedding import fit_shard

__all__ = ["Checkpoint", "Embedding", "Records", "ShardsDataset", "fit_shard", "shards_dataset"]


def __getattr__(name: str) -> object:
    if name not in ("Embedding", "fit_shard"):
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from .adapters.tensorflow import embedding  # here: it loads Keras

    globals().update(Embedding=embedding.EmbeddingLayer, fit_shard=embedding.fit_shard)
    return globals()[name]


def __dir__() -> list[str]:
    return sorted(__all__)
