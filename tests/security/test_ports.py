"""Every port of a real job, and what strangers do to it: rubbish, silence, and ten thousand connections at once."""

import contextlib
import random
import resource
import socket
import struct
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from elastic_run.rendezvous.identity.secret import VARIABLE, new_secret
from elastic_run.rendezvous.rpc.envelope import Asked, Caller, Hello, packed
from elastic_run.rendezvous.wire.frame import PREFIX, framed

from ..integration.cluster import Cluster
from .sockets import listening

SECONDS = 20.0
"""For a port to take a connection, on a busy machine."""

HELLO = packed(Hello(Caller("run", "stranger", "S1")))

RUBBISH: dict[str, bytes] = {
    "a frame of four gigabytes": PREFIX.pack(2**32 - 1) + bytes(1000),
    "a deep first message": framed(b"[" * 30_000),
    "a deep request": HELLO + framed(b'{"id":1,"method":"ledger","seconds":1}\n' + b'{"a":' * 100_000),
    "a request of no method": HELLO + packed(Asked(1, "../../etc/passwd", 1.0), b"{}"),
    "a request without an end of its time": HELLO + framed(b'{"id":1,"method":"status","seconds":1e999}\n{}'),
    "half a handshake of TLS": b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(40),
    "a head of HTTP without an end": b"GET / HTTP/1.1\r\n" + b"X: y\r\n" * 10_000,
    "a long body of HTTP": b"POST /v3/kv/range HTTP/1.1\r\nContent-Length: 99999999999999\r\n\r\n" + b"[" * 100_000,
    "rubbish of HTTP/2": b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + random.Random(1).randbytes(10_000),
    "random bytes": random.Random(2).randbytes(2**17),
    "nothing": b"",
}

Address = tuple[str, int] | str


LISTENS = "00010000"
"""Flags of a Unix socket that does; one that only has a name is no door."""


def doors(cluster: Cluster) -> list[Address]:
    """Where processes of the job listen: TCP ports of this machine, and abstract Unix sockets."""
    own = cluster.processes()  # and not those of what else runs on this machine
    ports = {("127.0.0.1", int(port)) for port in listening(*own)}
    inodes: set[str] = set()
    for pid in own:
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):  # it has ended
            inodes |= {str(entry.readlink()) for entry in Path(f"/proc/{pid}/fd").iterdir()}
    names = {
        words[-1].replace("@", "\0", 1)
        for line in Path("/proc/net/unix").read_text().splitlines()
        if (words := line.split())[-1].startswith("@elastic-run-")
        and f"socket:[{words[6]}]" in inodes
        and words[3] == LISTENS
    }
    return [*sorted(ports), *sorted(names)]


def throw(address: Address, data: bytes, *, rudely: bool) -> None:
    """Connects, says it, and hangs up, `rudely` by a reset. Raises ConnectionRefusedError, which is never right."""
    family = socket.AF_UNIX if isinstance(address, str) else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as thrown:
        thrown.settimeout(SECONDS)
        thrown.connect(address)
        with contextlib.suppress(ConnectionResetError, BrokenPipeError):
            thrown.sendall(data)
        if rudely:
            thrown.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))


@pytest.mark.parametrize("how", ["insecure", "secret"])
def test_rubbish_at_every_port_costs_a_job_nothing(how: str, founded: Cluster) -> None:
    flags = {"insecure": ""} if how == "insecure" else {}
    env = {VARIABLE: new_secret().text} if how == "secret" else {}
    founded.start("A", "B", nnodes=2, env=env, conf={"lease_ttl": 5}, **flags)
    workers = founded.workers(2)
    found = doors(founded)
    assert len(found) >= 6, f"two agents' ports and sockets, and a store's two ports, are expected: {found}"
    for address in found:
        for data in RUBBISH.values():
            for rudely in (False, True):
                throw(address, data, rudely=rudely)
    founded.kill_worker(workers[0].rank)
    founded.workers(2).release()
    assert founded.finish() == {"A": 0, "B": 0}
    for node in "AB":
        assert "Traceback" not in founded.log(node)
        assert len(founded.log(node)) < 20_000
        assert "was lost" not in founded.log(node)


@contextlib.contextmanager
def crowd(addresses: Sequence[Address], count: int) -> Iterator[int]:
    """So many connections at once to each, that say one byte; how many of all could be made."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    made = 0
    try:
        with contextlib.ExitStack() as held:
            for _ in range(count):
                for address in addresses:
                    family = socket.AF_UNIX if isinstance(address, str) else socket.AF_INET
                    one = held.enter_context(socket.socket(family, socket.SOCK_STREAM))
                    one.settimeout(SECONDS)
                    with contextlib.suppress(OSError):
                        one.connect(address)
                        made += 1
                        one.send(b"\x16")
            yield made
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_ten_thousand_connections_that_say_one_byte_do_not_keep_a_job_from_its_next_round(founded: Cluster) -> None:
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard != resource.RLIM_INFINITY and hard < 11_000:
        pytest.skip(f"this process may open only {hard} files: it cannot hold ten thousand connections")
    env = {VARIABLE: new_secret().text}
    founded.start("A", "B", nnodes="1:3", env=env, conf={"last_call_timeout": 0, "lease_ttl": 5})
    founded.workers(2)
    found = [address for address in doors(founded) if not isinstance(address, str)]
    with crowd(found, 10_000 // len(found)) as made:
        assert made > 9_000
        founded.kill_worker(0)
        founded.workers(2)
        founded.start("C", env=env)  # a newcomer has to reach the store and the agents, too
        founded.workers(3).release()
        assert founded.finish() == dict.fromkeys("ABC", 0)
    for node in "ABC":
        assert "Traceback" not in founded.log(node)
        assert "was lost" not in founded.log(node)
