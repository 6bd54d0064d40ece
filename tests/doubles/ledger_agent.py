"""An agent for workers that lease shards: a thread of this process, which answers at a socket and has the ledger."""

import contextlib
import secrets
import socket
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

from elastic_run.adapters.client.channel import Back, Call
from elastic_run.adapters.client.context import AGENT, ROUND
from elastic_run.adapters.client.shards import Shards
from elastic_run.master.data.ledger import Answer, Ledger, Request, fresh, ledger_of
from elastic_run.master.data.stored_ledger import read, written
from elastic_run.rendezvous.rpc.envelope import Answered, Asked, packed, unpacked
from elastic_run.rendezvous.wire.frame import PREFIX
from elastic_run.rendezvous.wire.values import decode, encode

ENOUGH = 20.0
"""Seconds that no test takes."""


def alone(size: Any = 100, shard_size: int = 10, **more: Any) -> Shards:
    """A world of one without a launcher."""
    return Shards(more.pop("name", "data"), size, shard_size=shard_size, environment={}, **more)


def environment_of(rank: int = 0, size: int = 1, round: int = 0, agent: str = "") -> dict[str, str]:
    """An environment."""
    given = {"RANK": str(rank), "WORLD_SIZE": str(size), "LOCAL_RANK": str(rank), "LOCAL_WORLD_SIZE": str(size)}
    return given | ({ROUND: str(round)} if round else {}) | ({AGENT: agent} if agent else {})


@dataclass
class Agent:
    """Agent and master in one: answers as they do, with one ledger, which is read anew before each request.

    Attributes:
        override: given a request, an answer in place of the ledger's, or None.
        patience: seconds after which a waiting request is told "later".
        clock: the ledger's; tests move it.
        current: what it says to "current".
        servers: what it says of the job's servers to who knows that version.
        heard: every request, once for each time that it was asked.
        waits: set while a request waits for others.
        hold: while it is cleared, nothing is answered.
    """

    name: str = field(default_factory=lambda: f"elastic-run-test-{secrets.token_hex(8)}")
    override: Callable[[Request], Answer | None] = lambda _: None
    patience: float = ENOUGH
    clock: float = 0.0
    current: bool = True
    servers: Callable[[int], str] = lambda _: ""
    heard: list[Request] = field(default_factory=list[Request])
    calls: list[Call] = field(default_factory=list[Call])
    ledger: Ledger | None = None
    waits: threading.Event = field(default_factory=threading.Event)
    hold: threading.Event = field(default_factory=threading.Event)
    changed: threading.Condition = field(default_factory=threading.Condition)
    threads: list[threading.Thread] = field(default_factory=list[threading.Thread])
    sockets: list[socket.socket] = field(default_factory=list[socket.socket])

    def listen(self, own: socket.socket) -> None:
        while True:
            try:
                taken, _ = own.accept()
            except OSError:
                return
            self.sockets.append(taken)
            self.start(self.serve, taken)

    def start(self, target: Callable[[socket.socket], None], with_: socket.socket) -> None:
        thread = threading.Thread(target=target, args=(with_,))
        self.threads.append(thread)
        thread.start()

    def serve(self, taken: socket.socket) -> None:
        with contextlib.suppress(OSError), taken, taken.makefile("rwb") as stream:
            while prefix := stream.read(PREFIX.size):
                head, body = unpacked(stream.read(PREFIX.unpack(prefix)[0]))
                if not body:
                    continue  # the first message
                call = decode(Call, body)
                self.calls.append(call)
                back = self.answer(call.request) if call.request else Back(current=self.current)
                if call.kind == "servers":
                    back = Back(told=self.servers(call.steps))
                self.hold.wait(ENOUGH)
                stream.write(packed(Answered(decode(Asked, head).id), encode(back)))
                stream.flush()

    def answer(self, request: Request) -> Back:
        with self.changed:
            self.heard.append(request)
            if answer := self.override(request):
                return Back(answer)
            if self.ledger is None:
                assert request.dataset is not None
                self.ledger = ledger_of(fresh(request.dataset), self.clock)
                self.ledger.turn(request.round)
            while (answer := self.ledger.answer(request, self.clock)) is None:
                self.waits.set()
                if not self.changed.wait(self.patience):
                    return Back(Answer("later", self.ledger.why(request)))
            self.waits.clear()
            read(written(self.ledger.state))  # it must always be such that a successor can read it
            self.changed.notify_all()
            return Back(answer)

    def move(self, seconds: float) -> None:
        """The clock goes on, and who waits is looked at again."""
        with self.changed:
            self.clock += seconds
            self.changed.notify_all()

    def shards(self, rank: int = 0, size: int = 1, records: Any = 100, shard_size: int = 10, **more: Any) -> Shards:
        """What the script of that rank has."""
        environment = environment_of(rank, size, more.pop("round", 1), f"@{self.name}")
        return Shards(more.pop("name", "data"), records, shard_size=shard_size, environment=environment, **more)


@contextlib.contextmanager
def listening() -> Iterator[Agent]:
    """An agent that listens."""
    found = Agent()
    found.hold.set()
    own = socket.socket(socket.AF_UNIX)
    own.bind("\0" + found.name)
    own.listen()
    found.start(found.listen, own)
    try:
        yield found
    finally:
        for held in (own, *found.sockets):
            with contextlib.suppress(OSError):
                held.shutdown(socket.SHUT_RDWR)
        for thread in found.threads:
            thread.join(ENOUGH)
        own.close()
    assert not any(thread.is_alive() for thread in found.threads)
