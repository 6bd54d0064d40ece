"""A topic of Kafka, whose brokers are librdkafka's own, on real sockets."""

import contextlib
import os
import pickle
import threading
from collections.abc import Iterator

import pytest

import elastic_run
from elastic_run.adapters.streams.kafka import KafkaTopic
from elastic_run.exceptions import BadSource, OffsetsGone, SourceAway

from ....doubles.kafka_brokers import Brokers, brokers

pytest.importorskip("confluent_kafka", reason="the extra `streams`")
pytestmark = pytest.mark.timeout(120)


@pytest.fixture
def cluster() -> Iterator[Brokers]:
    with brokers(2, clicks=3) as found:
        yield found


def test_records_are_read_once_through_an_outage_of_all_brokers(cluster: Brokers) -> None:
    values = {number: [f"{number}:{each}".encode() for each in range(400)] for number in range(3)}
    cluster.produce("clicks", values)
    seen: list[bytes] = []
    topic = elastic_run.data.KafkaTopic("clicks", cluster.servers)
    with elastic_run.data.stream("clicks", topic, shard_size=90, follow=False, commit="ack") as data:
        for shard in data:
            if shard.index == 3:
                cluster.set_down(1)
                cluster.set_down(2)
                threading.Timer(1.0, lambda: [cluster.set_up(number) for number in (1, 2)]).start()
            assert [record.offset for record in shard.records] == list(shard.indices)
            seen += (record.value for record in shard.records)
            shard.done()
    assert sorted(seen) == sorted(value for each in values.values() for value in each)


def test_a_source_reads_any_range_and_says_what_is_not_there(cluster: Brokers) -> None:
    cluster.produce("clicks", {1: [b"a", b"b", b"c", b"d"]})
    topic = KafkaTopic("clicks", cluster.servers)
    assert topic.partitions() == {"clicks/0": (0, 0), "clicks/1": (0, 4), "clicks/2": (0, 0)}
    for first, stop in [(0, 2), (2, 4), (1, 3), (0, 4)]:
        records, after = topic.read("clicks/1", first, stop)
        assert [(each.offset, each.value) for each in records] == [
            (number, b"abcd"[number : number + 1]) for number in range(first, stop)
        ]
        assert after == stop
        assert records[0].timestamp and records[0].key is None
    assert topic.read("clicks/1", 4, 5) == ([], 4)  # not yet
    assert [each.offset for each in topic.read("clicks/1", 0, 1)[0]] == [0]
    assert [each.offset for each in topic.read("clicks/1", 3, 4)[0]] == [3]  # passes over what others have
    with pytest.raises(OffsetsGone, match="ends at 4"):
        while True:  # it looks for a moment whether they come
            topic.read("clicks/1", 9, 10)
    with pytest.raises(SourceAway):
        KafkaTopic("clicks", "127.0.0.1:1").partitions()
    with pytest.raises(BadSource, match=r"sets group\.id"):
        KafkaTopic("clicks", cluster.servers, options={"group.id": "mine"})
    with pytest.raises(BadSource, match="with these options"):
        KafkaTopic("clicks", cluster.servers, options={"no.such.setting": 1}).partitions()


def test_the_first_look_is_at_all_partitions(cluster: Brokers) -> None:
    topic = KafkaTopic("clicks", cluster.servers)
    cluster.set_down(2)
    with pytest.raises(SourceAway):
        topic.partitions()
    cluster.set_up(2)
    while True:
        with contextlib.suppress(SourceAway):
            assert topic.partitions().keys() == {"clicks/0", "clicks/1", "clicks/2"}
            break
    cluster.set_down(2)
    while not 0 < len(topic.partitions()) < 3:
        pass


def test_a_consumer_is_of_one_process(cluster: Brokers) -> None:
    cluster.produce("clicks", {0: [b"a"]})
    topic = KafkaTopic("clicks", cluster.servers)
    assert topic.read("clicks/0", 0, 1)[1] == 1
    assert pickle.loads(pickle.dumps(topic)).read("clicks/0", 0, 1)[1] == 1
    if not (child := os.fork()):
        with contextlib.suppress(BadSource):
            topic.partitions()
            os._exit(1)
        os._exit(0)
    assert os.waitpid(child, 0) == (child, 0)
