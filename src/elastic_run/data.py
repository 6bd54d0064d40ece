"""Leased data: shards of a dataset, of which each rank asks for as many as it can do; files of records; streams.

    for shard in elastic_run.data.shards("train", 1_000_000, shard_size=1000, epochs=3):
        for index in shard.indices:
            ...
        shard.done()

    clicks = elastic_run.data.open("data/*.csv")
    for shard in clicks.shards("train", shard_size=4096):
        columns = shard.read()
        ...
        shard.done()

    events = elastic_run.data.stream("events", elastic_run.data.LineFiles("arriving/"), shard_size=1 << 20)
    for shard in events:
        for record in shard.records:
            ...
        shard.done()

No framework is needed. For batches of PyTorch see `elastic_run.torch`.
"""

from .adapters.client.shards import Part, Shard, Shards, shards
from .adapters.readers.contract import BadRow, Columns, RecordReader
from .adapters.readers.opened import RecordFiles, RecordShard, RecordShards
from .adapters.readers.opened import open_files as open
from .adapters.readers.query import open_query as query
from .adapters.streams.contract import StreamRecord, StreamSource
from .adapters.streams.kafka import KafkaTopic
from .adapters.streams.line_files import LineFiles
from .adapters.streams.stream_shards import StreamShard, StreamShards, stream

__all__ = [
    "BadRow",
    "Columns",
    "KafkaTopic",
    "LineFiles",
    "Part",
    "RecordFiles",
    "RecordReader",
    "RecordShard",
    "RecordShards",
    "Shard",
    "Shards",
    "StreamRecord",
    "StreamShard",
    "StreamShards",
    "StreamSource",
    "open",
    "query",
    "shards",
    "stream",
]


def __dir__() -> list[str]:
    return sorted(__all__)
