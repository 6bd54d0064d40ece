"""The source of a topic of Kafka, by confluent-kafka: it assigns and seeks, and is in no consumer group.

A group would be a second master, that hands out partitions as well. Nothing is committed to Kafka.
"""

import os
import time
from collections.abc import Mapping, Sequence
from importlib import import_module
from typing import Any

from .contract import BadSource, OffsetsGone, SourceAway, StreamRecord

FOUND_SECONDS = 2.0
"""Partitions that are added are found after that."""

ANSWER_SECONDS = 1.0
"""What the brokers may take for an answer, before they count as away."""

READ_SECONDS = 1.0
"""One `read` waits for records for so long."""

OURS = ("auto.offset.reset", "bootstrap.servers", "enable.auto.commit", "enable.partition.eof", "group.id")
"""Settings that are not the script's."""

NEAR = 5_000
"""Records that are passed over rather than sought: other workers have them, and they are fetched already."""

DEFAULTS: Mapping[str, Any] = {  # Any: as confluent-kafka takes them
    "fetch.queue.backoff.ms": 10,  # a second by default, for who reads on after its queue was full
    "fetch.wait.max.ms": 20,  # another partition of that broker is read only when this is over
    "log_level": 2,  # brokers that are away are told of by `elastic-run` itself
    "queued.min.messages": 10_000,
    "queued.max.messages.kbytes": 16_384,
}
"""Settings that the script may change."""


class KafkaTopic:
    """A topic of Kafka, of which each partition is one of the stream; a `StreamSource`.

    Its consumer is made when it is first looked at, and cannot be used by a process that is forked after that.

    Args:
        topic: its name; it exists.
        servers: brokers to begin with, as "host:port,host:port".
        options: more settings of librdkafka, such as those of `security.protocol`.

    Raises:
        elastic_run.exceptions.BadSource: a setting is one that a stream needs for itself, or there is no
            confluent-kafka.
    """

    def __init__(self, topic: str, servers: str, *, options: Mapping[str, Any] | None = None) -> None:
        given = dict(options or {})
        if taken := [each for each in OURS if each in given]:
            raise BadSource(f"options= sets {', '.join(taken)} of topic {topic!r}: a stream sets that itself")
        try:
            self._kafka: Any = import_module("confluent_kafka")  # Any: the package's types are its own
        except ModuleNotFoundError:
            raise BadSource(
                f"topic {topic!r} cannot be read without confluent-kafka: install elastic-run with its extra `streams`"
            ) from None
        self.name = f"topic {topic} of Kafka"
        self._topic = topic
        self._settings = {
            **DEFAULTS,
            **given,
            "bootstrap.servers": servers,
            "group.id": "elastic-run",  # it is demanded, and not used
            "enable.auto.commit": False,
            "enable.auto.offset.store": False,
            "enable.partition.eof": True,
            "auto.offset.reset": "error",
        }
        self._consumer: Any = None
        self._pid = 0
        self._numbers: list[int] = []
        self._listed = 0.0
        self._seen_all = False
        self._next: tuple[str, int] | None = None  # what the consumer would give next

    def partitions(self) -> Mapping[str, tuple[int, int]]:
        """See `StreamSource`; once all were seen, those whose broker is away are left out.

        Raises:
            elastic_run.exceptions.SourceAway: until then one is away: it would be taken for one that came later.
        """
        consumer = self._opened()
        if not self._numbers or time.monotonic() >= self._listed + FOUND_SECONDS:
            self._numbers = self._list_numbers(consumer)
            self._listed = time.monotonic()
        found: dict[str, tuple[int, int]] = {}
        away: object = None
        for number in self._numbers:
            try:
                found[self._name_of(number)] = self._ends_of(consumer, number)
            except SourceAway as error:
                away = error
        if away and not (found and self._seen_all):
            raise SourceAway(f"{self.name}: {away}")
        self._seen_all = True
        return found

    def read(self, partition: str, first: int, stop: int) -> tuple[Sequence[StreamRecord], int]:
        """See `StreamSource`."""
        consumer = self._opened()
        number = int(partition.rpartition("/")[2])
        where, at = self._next or ("", 0)
        if where != partition or not first - NEAR <= at <= first:
            consumer.assign([self._kafka.TopicPartition(self._topic, number, first)])
            at = first
        self._next = None
        records: list[StreamRecord] = []
        after, until = first, time.monotonic() + READ_SECONDS
        while after < stop and (left := until - time.monotonic()) > 0:
            message = consumer.poll(left)
            if message is None:
                break
            if error := message.error():
                if error.code() == self._kafka.KafkaError._PARTITION_EOF:
                    after = max(after, min(message.offset(), stop)) if message.partition() == number else after
                elif not self._may_pass(error):
                    if records:
                        return records, after  # the next call finds the same
                    self._refuse(consumer, number, first, error)
            elif message.partition() == number:
                at = message.offset() + 1
                if at > stop:
                    return records, stop
                if at > after:
                    records.append(self._record_of(message))
                    after = at
        self._next = (partition, at) if after > first else None  # what gives nothing is sought anew
        return records, after

    def __getstate__(self) -> Mapping[str, Any]:
        """For a process that is spawned: without the consumer."""
        return {**vars(self), "_kafka": None, "_consumer": None, "_pid": 0, "_next": None}

    def __setstate__(self, state: Mapping[str, Any]) -> None:
        """What `__getstate__` gave."""
        vars(self).update(state, _kafka=import_module("confluent_kafka"))

    def _opened(self) -> Any:
        """The consumer of this process. Raises BadSource where a setting makes no sense."""
        if self._consumer is not None and self._pid != os.getpid():
            raise BadSource(
                f"{self.name} was read before this process was forked, and librdkafka's threads are not here: make the "
                "KafkaTopic in the process that reads it"
            )
        if self._consumer is None:
            try:
                self._consumer = self._kafka.Consumer(self._settings)
            except (self._kafka.KafkaException, TypeError, ValueError) as error:
                raise BadSource(f"{self.name} cannot be read with these options: {error}") from None
            self._pid = os.getpid()
        return self._consumer

    def _list_numbers(self, consumer: Any) -> list[int]:
        """The topic's partitions, as the brokers say now."""
        try:
            topic = consumer.list_topics(self._topic, ANSWER_SECONDS).topics[self._topic]
        except self._kafka.KafkaException as error:
            if self._numbers:
                return self._numbers
            raise SourceAway(f"{self.name}: {error.args[0]}") from None
        if topic.error is not None:
            if self._numbers:
                return self._numbers
            raise SourceAway(f"{self.name}: {topic.error}")
        return sorted(topic.partitions)

    def _ends_of(self, consumer: Any, number: int) -> tuple[int, int]:
        try:
            ends = consumer.get_watermark_offsets(
                self._kafka.TopicPartition(self._topic, number), ANSWER_SECONDS, cached=False
            )
        except self._kafka.KafkaException as error:
            raise SourceAway(f"partition {number}: {error.args[0]}") from None
        if ends is None:
            raise SourceAway(f"partition {number}: no answer for {ANSWER_SECONDS:g} s")
        return ends

    def _name_of(self, number: int) -> str:
        return f"{self._topic}/{number}"

    def _may_pass(self, error: Any) -> bool:
        """A broker went away, say: librdkafka tries again by itself."""
        codes = self._kafka.KafkaError
        return error.code() in (
            codes._TRANSPORT,
            codes._ALL_BROKERS_DOWN,
            codes._TIMED_OUT,
            codes._RESOLVE,
            codes.LEADER_NOT_AVAILABLE,
            codes.NOT_LEADER_FOR_PARTITION,
        ) or (error.retriable() and not error.fatal())

    def _refuse(self, consumer: Any, number: int, first: int, error: Any) -> None:
        """Raises what an error means that does not pass."""
        codes = self._kafka.KafkaError
        if error.code() in (codes._AUTO_OFFSET_RESET, codes.OFFSET_OUT_OF_RANGE):
            low, high = self._ends_of(consumer, number)
            if first < low:
                raise OffsetsGone(f"{self._name_of(number)} begins at {low}", low)
            if first > high:
                raise OffsetsGone(f"{self._name_of(number)} ends at {high}: was the topic made anew?")
            return
        if error.code() in (codes.TOPIC_AUTHORIZATION_FAILED, codes._AUTHENTICATION) or error.fatal():
            raise BadSource(f"{self.name} cannot be read: {error}")
        raise SourceAway(f"{self._name_of(number)}: {error}")

    def _record_of(self, message: Any) -> StreamRecord:
        kind, milliseconds = message.timestamp()
        known = kind != self._kafka.TIMESTAMP_NOT_AVAILABLE
        return StreamRecord(message.offset(), message.value(), message.key(), milliseconds / 1000 if known else None)
