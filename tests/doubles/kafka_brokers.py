"""Brokers of Kafka for tests: librdkafka's mock cluster, in a process of its own, by ctypes on confluent-kafka's wheel.

It speaks Kafka's protocol on real sockets. It keeps 5 MB of a partition, forgets all when it ends, adds no partition,
and has no retention: `record_log.py` stands in for those.
"""

import contextlib
import ctypes
import subprocess
import sys
from collections.abc import Generator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]


@dataclass(eq=False)
class Brokers:
    """A cluster that runs.

    Attributes:
        servers: as clients take them.
    """

    servers: str
    _process: "subprocess.Popen[str]"

    def set_down(self, number: int) -> None:
        """From 1; its connections are closed, and others are refused."""
        self._order(f"down {number}")

    def set_up(self, number: int) -> None:
        self._order(f"up {number}")

    def _order(self, line: str) -> None:
        assert self._process.stdin and self._process.stdout
        self._process.stdin.write(line + "\n")
        self._process.stdin.flush()
        assert self._process.stdout.readline() == "done\n"

    def produce(self, topic: str, values: dict[int, list[bytes]]) -> None:
        """Appends records to partitions, by number."""
        from confluent_kafka import Producer

        producer = Producer({"bootstrap.servers": self.servers, "log_level": 2, "linger.ms": 5})
        for number, each in values.items():
            for value in each:
                producer.produce(topic, value, partition=number)
                producer.poll(0)
        assert producer.flush(20) == 0


@contextlib.contextmanager
def brokers(count: int = 1, **topics: int) -> Generator[Brokers]:
    """A cluster of so many brokers with these topics, each of so many partitions."""
    words = [str(count), *(f"{topic}={partitions}" for topic, partitions in topics.items())]
    command = [sys.executable, "-m", "tests.doubles.kafka_brokers", *words]
    with subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout
            yield Brokers(process.stdout.readline().strip(), process)
        finally:
            process.kill()


def main() -> None:
    """The process: brokers until its input ends."""
    import confluent_kafka

    folder = Path(confluent_kafka.__file__).parent
    (path,) = folder.with_name("confluent_kafka.libs").glob("librdkafka*")
    library: Any = ctypes.CDLL(str(path))
    for name in ("rd_kafka_conf_new", "rd_kafka_new", "rd_kafka_mock_cluster_new"):
        getattr(library, name).restype = ctypes.c_void_p
    library.rd_kafka_mock_cluster_bootstraps.restype = ctypes.c_char_p
    why = ctypes.create_string_buffer(512)
    settings = ctypes.c_void_p(library.rd_kafka_conf_new())
    client = ctypes.c_void_p(library.rd_kafka_new(0, settings, why, len(why)))
    assert client, why.value
    cluster = ctypes.c_void_p(library.rd_kafka_mock_cluster_new(client, int(sys.argv[1])))
    for each in sys.argv[2:]:
        topic, _, partitions = each.partition("=")
        assert library.rd_kafka_mock_topic_create(cluster, topic.encode(), int(partitions), 1) == 0
    print(library.rd_kafka_mock_cluster_bootstraps(cluster).decode(), flush=True)
    for line in sys.stdin:
        order, number = line.split()
        call = getattr(library, f"rd_kafka_mock_broker_set_{order}")
        assert call(cluster, ctypes.c_int32(int(number))) == 0
        print("done", flush=True)


if __name__ == "__main__":
    main()
