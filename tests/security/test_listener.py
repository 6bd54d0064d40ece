"""Strangers at an agent's port: they cost the agent nothing but a share of its core."""

import asyncio
import contextlib
import re
import resource
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from elastic_run.rendezvous.failure_detector import AgentListener, dial, watch_until_dead
from elastic_run.rendezvous.identity.contexts import Identity
from elastic_run.rendezvous.identity.secret import new_secret
from elastic_run.rendezvous.rpc.bounds import MOST_PASSING
from elastic_run.rendezvous.rpc.client import Connection
from elastic_run.rendezvous.rpc.envelope import Caller, Hello, Security, packed
from elastic_run.rendezvous.wire.frame import LIMIT, PREFIX

from ..integration.cluster import Cluster
from .listener import Words
from .sockets import listening

SCRIPT = Path(__file__).with_name("listener.py")

DEADLINE = 60.0
"""Seconds that anything here may take on a busy machine."""

FILES = 1024
"""Descriptors of the process that is attacked."""

MANY = FILES + 76
"""Connections of an attacker."""

HELLO = packed(Hello(Caller("run", "stranger", "S1")))


class Target:
    """The process that is attacked.

    Args:
        how: "ours", or "asyncio": as it would be without bounds.
        errors: takes what it prints besides answers.
    """

    def __init__(self, how: str, errors: Path) -> None:
        self._errors = errors
        with errors.open("w") as file:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "tests.security.listener", how, str(FILES)],
                cwd=Path(__file__).parents[2],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=file,
                text=True,
            )
        assert self.process.stdout is not None
        self.address = self.process.stdout.readline().strip()
        host, _, port = self.address.rpartition(":")
        self.target = host, int(port)

    def ask(self, question: str) -> str:
        """Its answer."""
        assert self.process.stdin is not None and self.process.stdout is not None
        print(question, file=self.process.stdin, flush=True)
        return self.process.stdout.readline().strip()

    @property
    def printed(self) -> str:
        """All that it has printed besides answers."""
        return self._errors.read_text()

    def runs_out(self, seconds: float) -> bool:
        """Whether it can open no hundred files more, within so long: it accepts after who connects has gone on."""
        until = time.monotonic() + seconds
        while (more := self.ask("files 100") == "True") and time.monotonic() < until:
            time.sleep(0.1)
        return not more

    def prints(self, much: int, seconds: float) -> str:
        """All that it has printed, once that is so much or after so long."""
        until = time.monotonic() + seconds
        while len(found := self.printed) < much and time.monotonic() < until:
            time.sleep(0.1)
        return found

    def end(self) -> None:
        """Kills it."""
        self.process.kill()
        self.process.communicate()


@contextlib.contextmanager
def attacked(how: str, tmp_path: Path) -> Iterator[Target]:
    """A fresh process to be attacked."""
    target = Target(how, tmp_path / how)
    try:
        yield target
    finally:
        target.end()


@pytest.fixture(autouse=True)
def enough_files() -> Iterator[None]:
    """For whoever attacks."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, min(hard, 4 * MANY)), hard))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


@contextlib.contextmanager
def connected(address: tuple[str, int], count: int, say: bytes = b"") -> Iterator[list[socket.socket]]:
    """So many connections at once, on each of which this is said."""
    with contextlib.ExitStack() as opened:
        held: list[socket.socket] = []
        for _ in range(count):
            held.append(opened.enter_context(socket.create_connection(address, timeout=DEADLINE)))
            with contextlib.suppress(ConnectionError):  # it was hung up on
                held[-1].sendall(say)
        yield held


async def answered(address: str) -> str:
    """What a caller is answered who says who it is."""
    async with asyncio.timeout(DEADLINE):
        reader, writer = await dial(address, "A1")
        connection = Connection(reader, writer, "the target", Caller("run", "friend", "F1"))
        try:
            return (await connection.ask("echo", Words("well"), Words, DEADLINE)).text
        finally:
            await connection.close()


def dropped(held: list[socket.socket]) -> int:
    """How many of these were hung up on."""
    found = 0
    for each in held:
        each.setblocking(False)
        try:
            while data := each.recv(65536):
                pass
            found += not data
        except BlockingIOError:
            pass
        except OSError:
            found += 1
    return found


@pytest.mark.parametrize("how", ["asyncio", "ours"])
async def test_silent_connections_leave_the_process_its_descriptors_and_print_little(how: str, tmp_path: Path) -> None:
    protected = how == "ours"
    with attacked(how, tmp_path) as target:
        dead = asyncio.create_task(watch_until_dead(target.address, "A1"))
        with connected(target.target, MANY):
            if protected:
                assert await answered(target.address) == "well"
            assert await asyncio.to_thread(target.runs_out, 3.0 if protected else DEADLINE) != protected
            printed = await asyncio.to_thread(target.prints, 1000, 3.0 if protected else DEADLINE)
            assert (len(printed) < 1000) == protected, printed[:2000]
        assert not dead.done()  # nothing of this says that it has died
        dead.cancel()


@pytest.mark.parametrize("how", ["asyncio", "ours"])
def test_unfinished_messages_take_little_memory(how: str, tmp_path: Path) -> None:
    count = 24
    half = HELLO + PREFIX.pack(LIMIT) + bytes(LIMIT - 1000)
    with attacked(how, tmp_path) as target:
        before = int(target.ask("memory"))
        with connected(target.target, count, half) as held:
            until = time.monotonic() + DEADLINE
            room = count * len(half) // 2
            if how == "asyncio":
                while int(target.ask("memory")) - before < room and time.monotonic() < until:
                    time.sleep(0.1)
                assert int(target.ask("memory")) - before > room
            else:
                while dropped(held) < count // 2 and time.monotonic() < until:
                    time.sleep(0.1)
                assert int(target.ask("memory")) - before < room
                assert asyncio.run(answered(target.address)) == "well"
                assert re.search("unfinished messages take too much memory", target.printed)


def test_who_is_slow_with_its_first_message_is_hung_up_on(tmp_path: Path) -> None:
    with attacked("ours", tmp_path) as target, connected(target.target, 20, HELLO[:3]) as held:
        begun = time.monotonic()
        for byte in HELLO[3:]:
            if dropped(held) == len(held) or time.monotonic() > begun + DEADLINE:
                break
            for each in held:
                each.setblocking(True)
                with contextlib.suppress(OSError):
                    each.send(bytes([byte]))
            time.sleep(0.3)
        assert dropped(held) == len(held)
        assert asyncio.run(answered(target.address)) == "well"


async def test_connections_that_end_no_handshake_are_few_where_nobody_may_be_a_stranger() -> None:
    """What OpenSSL takes for each is not given back: with a bound of half the descriptors, 10,000 took 550 MB."""
    identity = Identity(new_secret())
    agent = AgentListener("A1", security=Security(server=identity.server))
    await agent.start("127.0.0.1", "127.0.0.1")
    port = int(agent.address.rpartition(":")[2])
    watching = asyncio.create_task(watch_until_dead(agent.address, "A1", Security(client=identity.client)))
    try:
        with contextlib.ExitStack() as opened:
            held: list[socket.socket] = []
            for _ in range(3 * MOST_PASSING):
                held.append(opened.enter_context(socket.create_connection(("127.0.0.1", port), DEADLINE)))
                held[-1].sendall(b"\x16")
                await asyncio.sleep(0)
                assert agent.connections <= MOST_PASSING + 1, "and the one that watches"
            async with asyncio.timeout(DEADLINE):
                _, friend = await dial(agent.address, "A1", identity.client)
                friend.close()
            assert not watching.done()
    finally:
        watching.cancel()
        await agent.close()


async def test_ten_thousand_connections_in_a_row_do_not_keep_others_out(tmp_path: Path) -> None:
    def flood() -> int:
        done = 0
        for _ in range(10_000):
            with contextlib.suppress(ConnectionResetError), socket.create_connection(target.target, DEADLINE):
                done += 1
        return done

    with attacked("ours", tmp_path) as target:
        dead = asyncio.create_task(watch_until_dead(target.address, "A1"))
        flooding = asyncio.create_task(asyncio.to_thread(flood))
        answers = 0
        while not flooding.done():
            assert await answered(target.address) == "well"
            answers += 1
        assert await flooding >= 9_900 and answers > 3
        assert not dead.done() and target.ask("files 500") == "True"
        assert len(target.printed) < 1000
        dead.cancel()


def test_a_job_goes_into_its_next_round_while_strangers_hold_connections_to_its_agents(job: Cluster) -> None:
    job.start("A", "B", nnodes=2, prefix=("prlimit", f"--nofile={FILES}"))
    job.workers(2)
    ports = [int(port) for port in listening(*(node.process.pid for node in job.nodes.values()))]
    assert len(ports) == 2
    with contextlib.ExitStack() as strangers:
        for port in ports:
            strangers.enter_context(connected(("127.0.0.1", port), MANY))
        job.kill_worker(1)
        job.workers(2).release()
        assert job.finish() == {"A": 0, "B": 0}
    for node in "AB":
        assert job.log(node).count("to this process were closed") <= 3
        assert "Traceback" not in job.log(node)
