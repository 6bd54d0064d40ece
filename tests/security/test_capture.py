"""Every byte of a job's life on the wire, read by somebody on the way, who looks for words of the job in it."""

import contextlib
import socket
import threading
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType

import pytest

from elastic_run.rendezvous.identity.secret import new_secret

from ..faults.network import Founders, Net, Unavailable
from ..integration.cluster import failure

ETH_P_ALL, ETH_P_IP = 3, 0x0800
TCP = 6
SO_RCVBUFFORCE = 33
BUFFER = 2**26
"""Bytes that may wait to be read."""

NODES = ("A", "B")

ARGUMENT, DATASET, ERROR = "--token=argument-31415", "records-27182", "error-16180"
"""The first is in no message at all."""

WORDS = {
    "a key of the store": "/elastic-run/",
    "an agent's greeting": '"incarnation"',
    "the script's name": "puppet.py",
    "the name of a dataset": DATASET,
    "who has which shards": '"shard_index"',
    "what a worker failed with": ERROR,
    "where the workers meet": '"master_addr"',
}
"""What a job tells itself over the network."""


class Capture:
    """What passes at one place: the payload of each direction of each TCP connection. Use as a context manager.

    Args:
        place: where.
        ports: whose connections are the test's own, and no traffic of the job.
    """

    def __init__(self, net: Net, place: str, ports: frozenset[int]) -> None:
        def open_socket() -> socket.socket:
            made = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(ETH_P_ALL))
            made.setsockopt(socket.SOL_SOCKET, SO_RCVBUFFORCE, BUFFER)
            made.settimeout(0.2)
            return made

        self._socket = net.inside(place, open_socket)  # of each interface there, the loopback's too
        self._ports = ports
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._read, daemon=True)
        self._flows: defaultdict[tuple[bytes, int, int], bytearray] = defaultdict(bytearray)

    def __enter__(self) -> "Capture":
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop.set()
        self._thread.join()
        self._socket.close()

    def _read(self) -> None:
        while True:
            try:
                frame = self._socket.recv(2**17)
            except TimeoutError:
                if self._stop.is_set():
                    return
                continue
            self._take(frame)

    def _take(self, frame: bytes) -> None:
        if int.from_bytes(frame[12:14], "big") != ETH_P_IP or frame[23] != TCP:
            return
        packet = frame[14 : 14 + int.from_bytes(frame[16:18], "big")]
        segment = packet[4 * (packet[0] & 15) :]
        source, target = (int.from_bytes(segment[at : at + 2], "big") for at in (0, 2))
        if self._ports.isdisjoint((source, target)):
            self._flows[packet[12:20], source, target] += segment[4 * (segment[12] >> 4) :]

    @property
    def size(self) -> int:
        """Bytes of payload."""
        return sum(map(len, self._flows.values()))

    def holds(self, word: str) -> bool:
        """It can be read."""
        return any(word.encode() in flow for flow in self._flows.values())

    def found(self) -> set[str]:
        """Which of WORDS can be read."""
        return {name for name, word in WORDS.items() if self.holds(word)}


@pytest.fixture
def net() -> Iterator[Net]:
    """Two machines."""
    with contextlib.ExitStack() as stack:
        try:
            made = stack.enter_context(Net(*NODES))
        except Unavailable as reason:
            pytest.skip(f"no network can be listened to on this machine: {reason}")
        yield made


@pytest.mark.parametrize("how", ["insecure", "secret"])
def test_who_listens_on_the_way_reads_words_of_a_job_only_where_it_has_no_secret(
    how: str, net: Net, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    flags = {"insecure": ""}
    if how == "secret":
        file = tmp_path / "join"
        file.touch(mode=0o600)
        file.write_text(new_secret().text)
        flags = {"join_file": str(file)}
    with Founders(tmp_path / "job", net, NODES[:1], failure(request)) as job:
        job.args = (ARGUMENT,)
        own: int = vars(job)["_listener"].getsockname()[1]
        with Capture(net, "A", frozenset({own})) as capture:
            job.boot(*NODES, nnodes=2, max_restarts=1, **flags)
            first = job.workers(2)
            # One of them is on another node than the master. None gets a shard before all have asked.
            leases = f"shards = iter(elastic_run.data.shards({DATASET!r}, 1000, shard_size=10)); next(shards)"
            first.tell(f"import elastic_run; {leases}; strings.say('leased')")
            for rank in (0, 1):
                first.wait_for("leased", rank)
            first[1].tell(f"raise ValueError({ERROR!r})")
            job.workers(2).release()
            assert job.finish() == {"A": 0, "B": 0}
        assert capture.size > 10_000, "nothing was heard at all"
        assert not capture.holds(ARGUMENT)
        assert capture.found() == (set(WORDS) if how == "insecure" else set())
