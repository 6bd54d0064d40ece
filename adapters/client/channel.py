"""What a worker asks its agent, and the worker's end of that connection (`rendezvous/rpc/`).

The agent listens on an abstract Unix socket, which leaves no file behind; the worker finds its name in the environment.
There is no thread and no gRPC in the worker: a `Channel` writes a request and reads its answer when that is wanted.
"""

import select
import sys
from typing import Literal

from ...master.data.ledger import Answer, Request
from ...rendezvous.base.errors import ElasticRunError
from ...rendezvous.base.frozen import dataclass
from ...rendezvous.base.visible import visible
from ...rendezvous.host.local_socket import connected
from ...rendezvous.rpc.envelope import Caller, Hello, answer_of, asked, packed
from ...rendezvous.wire.fields import Number
from ...rendezvous.wire.frame import PREFIX, length_of
from ...rendezvous.wire.values import decode, encode

MEMORY_SUFFIX = "-memory"
"""After the name of the agent's socket: where workers reach the memory that it holds."""

SUFFIX = "-membership"
"""After the name of the agent's socket: where workers that keep their process reach it."""

Kind = Literal["ledger", "current", "saved", "steps", "servers", "clocks"]
"""The methods of an agent for its workers; each takes a `Call` and gives a `Back`."""


@dataclass(frozen=True, slots=True)
class Call:
    """What a worker asks its agent.

    Attributes:
        kind: "ledger": passes `request` on to the master. "current": whether `round` is still the job's current one,
            as the store says now. "saved": a checkpoint of `round` is written; nothing is wanted but a receipt.
            "steps": how many optimizer steps a counter in this process has counted; the same. "servers": where the
            job's parameter servers are, as soon as that differs from what the worker knows, or within a second.
            "clocks": which clock is the lowest of all workers, as soon as it is what is wanted, or within a second.
        round: the worker's.
        request: for the master's ledger.
        rank: the worker's.
        steps: so many; for "servers" the version that the worker knows.
        counter: the id of the one that has counted them.
        awaits: for "servers": the numbers of those for whose answer the worker waits; none: for all to start.
        seconds: for which it has.
        told: of "clocks", a `NodeClocks` (`master/data/worker_clocks.py`) as JSON. Of "steps", a `MemoryReport`
            (`master/machine/memory_report.py`) as JSON, where the checkpoint is kept in memory.
    """

    kind: Kind
    round: int
    request: Request | None = None
    rank: Number = 0
    steps: Number = 0
    counter: Number = 0
    awaits: tuple[Number, ...] = ()
    seconds: float = 0.0
    told: str = ""


@dataclass(frozen=True, slots=True)
class Back:
    """What the agent says.

    Attributes:
        answer: the master's.
        current: the round is the current one, for certain.
        run: of the job, where the round is the current one.
        text: where the agent cannot answer, why.
        told: of "servers", as `adapters/servers/job_servers.py` writes it; empty: the job has none. Of "clocks", a
            `LowestClock` as JSON.
    """

    answer: Answer | None = None
    current: bool = False
    run: str = ""
    text: str = ""
    told: str = ""


@dataclass(frozen=True, slots=True)
class Word:
    """What a worker says to its agent.

    Attributes:
        kind: "stay": it keeps its process. "hold": `count` sockets of its process group in `round` come with this.
            "formed": its process group stands. "state": it has the job's state, or (`count` is 0) it has it no more,
            and needs up to `seconds` for a step. "next": it has left the process group of `round` and wants its next
            rank assignment. "done": it has trained to the end, and takes no other rank.
        round: the worker's.
        count: of sockets; of states.
        text: for "next", why, where something was broken; empty where it was told to.
        seconds: see "state"; 0: less than matters.
        local_rank: for "stay", from a service: the worker for which all on this connection is said. None: the speaker.
    """

    kind: Literal["stay", "hold", "formed", "state", "next", "done"]
    round: int = 0
    count: int = 0
    text: str = ""
    seconds: float = 0.0
    local_rank: int | None = None


@dataclass(frozen=True, slots=True)
class News:
    """What an agent says to a worker.

    Attributes:
        kind: "assignment": its rank assignment in `round`, as `environment`. "planned": another round is wanted; the
            process group is whole, leave it together with the others. "over": `round` is the current one now, and the
            worker's is over.
        environment: the variables that have changed, as NAME=value.
    """

    kind: Literal["assignment", "planned", "over"]
    round: int = 0
    environment: tuple[str, ...] = ()


class AgentGone(ElasticRunError, ConnectionError, public=True):
    """The agent's socket is closed: its launcher has ended, and this worker will be ended as well."""


class AgentTimeout(ElasticRunError, TimeoutError, public=True):
    """The agent has not answered in time: its machine is busy, or it was stopped."""


def say_wait(rank: int, why: str) -> None:
    """Tells a person what a worker waits for."""
    say_line(f"rank {rank} waits: {visible(why)}")


def say_line(words: str) -> None:
    """Tells a person something, beside what the script prints."""
    print(f"[elastic-run] {words}", file=sys.stderr, flush=True)


class Channel:
    """A worker's connection to its agent. Several requests on their way may be answered in any order.

    Args:
        address: the value of ELASTIC_RUN_AGENT.
        timeout: seconds that an answer may take.
        rank: of this worker.
    """

    def __init__(self, address: str, timeout: float = 120.0, rank: int | None = None) -> None:
        self._timeout = timeout
        self._asked = 0  # requests so far; the last one's id
        self._first = packed(Hello(Caller(rank=rank)))
        self._got = bytearray()  # of the next answer; so waiting for it can be broken off and begun again
        try:
            self._socket = connected(address, timeout)
        except TimeoutError as error:
            raise AgentTimeout(f"the agent at {address} has not answered for {timeout:g} s: {error}") from None
        except OSError as error:
            raise AgentGone(f"cannot connect to the agent at {address} ({error}): its launcher has exited") from None

    def send(self, call: Call) -> None:
        """Asks, and does not wait. Raises AgentGone."""
        self._asked += 1
        message = self._first + asked(self._asked, call.kind, self._timeout, encode(call))
        self._socket.settimeout(self._timeout)
        try:
            self._socket.sendall(message)
            self._first = b""
        except OSError as error:
            raise AgentGone(f"cannot send a request to the agent ({error}): its launcher has exited") from None

    def fileno(self) -> int:
        """For `poll`."""
        return self._socket.fileno()

    def ready(self, seconds: float = 0.0) -> bool:
        """Whether there is something to receive within so many seconds: `receive` will hardly wait."""
        poll = select.poll()
        poll.register(self, select.POLLIN)
        return bool(poll.poll(seconds * 1000))

    def receive(self, timeout: float | None = None) -> Back:
        """Waits for the answer to what was sent, `timeout` seconds or those of the channel.

        Raises AgentGone, and AgentTimeout, after which the same answer can be waited for again.
        """
        self._socket.settimeout(self._timeout if timeout is None else timeout)
        self._fill(PREFIX.size)
        end = PREFIX.size + length_of(PREFIX.unpack_from(self._got)[0])
        self._fill(end)
        message = bytes(self._got[PREFIX.size : end])
        del self._got[:end]
        head, body = answer_of(message)
        if head.error and not head.id:
            raise AgentGone(f"the agent refuses the connection: {visible(head.text)}")
        return Back(text=visible(head.text)) if head.error else decode(Back, body)

    def ask(self, call: Call) -> Back:
        self.send(call)
        return self.receive()

    def close(self) -> None:
        self._socket.close()

    def _fill(self, count: int) -> None:
        while len(self._got) < count:
            try:
                part = self._socket.recv(min(count - len(self._got), 2**20))
            except TimeoutError:
                raise AgentTimeout(f"the agent has not answered for {self._socket.gettimeout():g} s") from None
            except OSError as error:
                raise AgentGone(f"the agent closed the connection ({error}): its launcher has exited") from None
            if not part:
                raise AgentGone("the agent closed the connection: its launcher has exited")
            self._got += part
