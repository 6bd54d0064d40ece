"""TensorFlow: leased data for `tf.data`, and checkpoints of model and position.

    import elastic_run.tensorflow

Importing this loads TensorFlow.
"""

from .adapters.tensorflow.checkpoint import Checkpoint
from .adapters.tensorflow.dataset import Records, ShardsDataset, shards_dataset

__all__ = ["Checkpoint", "Records", "ShardsDataset", "shards_dataset"]


def __dir__() -> list[str]:
    return sorted(__all__)
