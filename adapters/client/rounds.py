"""For a worker that keeps its process when the membership changes: its rank assignment in one round after the other.

    rounds = elastic_run.rounds()
    for context in rounds:                  # this round, and each that comes
        group = connect(context)            # what the worker exchanges tensors by
        rounds.register_sockets(group.sockets)  # so that a lost peer cannot keep this worker waiting

The agent gives the rank assignments, and breaks the process group where somebody is lost or silent: it has duplicates
of the process group's sockets, and shuts them down. So every call that waits for a peer ends within milliseconds, by an
error, and the worker asks for its next rank assignment. Who does not ask is ended and started again. The agent's side
is `elastic_agent/workers/process_groups.py`.

No thread is needed for it here: what the agent says lies in a socket until it is looked at.
"""

import array
import contextlib
import os
import select
import socket
import stat
import time
from collections.abc import Iterable, Iterator, Mapping

from ...rendezvous.base.errors import ElasticRunError
from ...rendezvous.host.local_socket import connected
from ...rendezvous.wire.frame import framed, take_frames
from ...rendezvous.wire.values import decode, encode
from .channel import SUFFIX, AgentGone, News, Word
from .context import AGENT, Context, context

CONNECT_SECONDS = 120.0
"""For the agent to take the connection."""

LONG_STEP = 0.25
"""Seconds; who takes less for a step has left a broken process group soon enough, and needs not say so."""

BATCH = 200
"""Descriptors in one message; the kernel takes 253."""


class NoAgent(ElasticRunError, RuntimeError, public=True):
    """This process has no agent that could give it another rank: elastic-run did not start it."""


class Rounds(Iterator[Context]):
    """An iterator of this worker's contexts, one for each round; `elastic_run.rounds` makes it.

    Args:
        environment: None: this process's own, which is then brought up to date in each new round.

    Attributes:
        context: this worker's, in its current round.

    Raises:
        elastic_run.exceptions.BadEnvironment: the launcher's environment is incomplete.
        elastic_run.exceptions.AgentGone: the launcher has ended.
    """

    def __init__(self, environment: Mapping[str, str] | None = None) -> None:
        given = os.environ if environment is None else environment
        self._environment = dict(given) if environment is not None else None
        self.context = context(given)
        self._begun = False
        self._held: list[tuple[int, int]] = []
        self._got = bytearray()
        self._planned = 0
        self._newest = self.context.round
        self._holds = False
        self._slowest = 0.0
        self._socket: socket.socket | None = None
        if agent := given.get(AGENT, ""):
            self._socket = _connected(agent)
            self._say(Word("stay", self.context.round))

    @property
    def alone(self) -> bool:
        """There is no agent: this round is the only one that will ever be."""
        return self._socket is None

    @property
    def standby(self) -> bool:
        """This process was started before a round had a rank for it: it has to call `next` first."""
        return self._socket is not None and self.context.round == 0

    @property
    def planned(self) -> bool:
        """Another round is wanted. Nothing is broken: agree with the others when to disconnect, and call `next`.

        Raises:
            elastic_run.exceptions.AgentGone: the launcher has ended.
        """
        self._listen()
        return self._planned > self.context.round

    @property
    def over(self) -> bool:
        """The round is over: its connections are broken, or will be at once.

        Raises:
            elastic_run.exceptions.AgentGone: the launcher has ended.
        """
        self._listen()
        return self._newest > self.context.round

    def register_sockets(self, sockets: Iterable[socket.socket | int]) -> None:
        """Hands duplicates of this round's sockets to the agent, which shuts them down when a peer is lost.

        Once in each round, or whenever there are more.

        Args:
            sockets: connected to peers, or their file descriptors. Those that listen are skipped.

        Raises:
            elastic_run.exceptions.AgentGone: the launcher has ended.
        """
        held: list[tuple[int, int]] = []
        for each in sockets:
            descriptor = each if isinstance(each, int) else each.fileno()
            if _connects(descriptor):
                held.append((descriptor, os.fstat(descriptor).st_ino))
        self._held += held
        for begin in range(0, len(held), BATCH):
            part = [descriptor for descriptor, _ in held[begin : begin + BATCH]]
            self._say(Word("hold", self.context.round, count=len(part)), part)

    def formed(self) -> None:
        """Reports that this worker is connected to its peers. Until then the agent waits longer for a word from it.

        Raises:
            elastic_run.exceptions.AgentGone: the launcher has ended.
        """
        self._say(Word("formed", self.context.round))

    def report_state(self, state: bool, seconds: float = 0.0) -> None:
        """Reports whether this worker has the job's state: a round may begin without a node whose workers have none.

        Where no worker reports, no round begins without a node that lives.

        Args:
            state: this worker has it.
            seconds: that a step takes here, about. A worker that is in a step when its connections break gets this
                time to come out of it.

        Raises:
            elastic_run.exceptions.AgentGone: the launcher has ended.
        """
        seconds = seconds if seconds >= LONG_STEP else 0.0
        if state != self._holds or not self._slowest / 1.5 <= seconds <= self._slowest * 1.5:
            self._holds, self._slowest = state, seconds
            self._say(Word("state", self.context.round, count=int(state), seconds=seconds))

    def done(self) -> None:
        """Reports that this worker has trained to the end: no node is admitted from now on."""
        with contextlib.suppress(AgentGone):  # then there is nobody who could give it one
            self._say(Word("done", self.context.round))

    @property
    def broken(self) -> bool:
        """Whether a registered socket of this round is closed, at this end or at the other."""
        poll = select.poll()
        for descriptor, inode in self._held:
            try:
                if os.fstat(descriptor).st_ino != inode:
                    return True
            except OSError:
                return True
            poll.register(descriptor, select.POLLRDHUP | select.POLLHUP | select.POLLERR)
        return bool(self._held and poll.poll(0))

    def next(self, why: str = "", timeout: float | None = None) -> Context:
        """Leaves the round, whose sockets the caller closes, and waits for this worker's context in the next one.

        Args:
            why: what was broken, in words; empty where the next round was `planned`.
            timeout: seconds; None: for as long as the job waits for its nodes, after which it ends this process.

        Returns:
            rank, world size and round; also `context` from now on, and in this process's environment.

        Raises:
            elastic_run.exceptions.NoAgent: the script was not started by elastic-run.
            elastic_run.exceptions.AgentGone: the launcher has ended.
            TimeoutError: no round came in time; it can be called again.
        """
        if self._socket is None:
            raise NoAgent("this process can join no other round: start the script with elastic-run")
        self._held = []
        self._say(Word("next", self.context.round, text=why[:500]))
        until = None if timeout is None else time.monotonic() + timeout
        asked = self.context.round
        while self.context.round == asked:
            rest = None if until is None else until - time.monotonic()
            if rest is not None and rest <= 0:
                raise TimeoutError(f"no rank assignment in a round after {asked} within {timeout:g} s")
            self._listen(rest, wait=True)
        self._begun = True
        return self.context

    def __next__(self) -> Context:
        if not self._begun:
            self._begun = True
            if not self.standby:
                return self.context
        if self._socket is None:
            raise StopIteration
        return self.next("" if self.planned or self.standby else "the process group is broken")

    def close(self) -> None:
        """Hangs up: from now on this process is ended when its round is."""
        if self._socket is not None:
            self._socket.close()
            self._socket = None

    def _say(self, word: Word, descriptors: list[int] | None = None) -> None:
        if self._socket is None:
            return
        rights = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", descriptors))] if descriptors else []
        message = framed(encode(word))
        try:
            sent = self._socket.sendmsg([message], rights)
            self._socket.sendall(message[sent:])
        except OSError as error:
            raise AgentGone(f"the agent closed the connection ({error}): its launcher has exited") from None

    def _listen(self, timeout: float | None = None, *, wait: bool = False) -> None:
        """Takes what the agent has said; with `wait`, for at least something, or `timeout` seconds."""
        if self._socket is None:
            return
        poll = select.poll()
        poll.register(self._socket, select.POLLIN)
        limit = (None if timeout is None else max(timeout, 0) * 1000) if wait else 0
        while poll.poll(limit):
            try:
                part = self._socket.recv(65536)
            except OSError as error:
                raise AgentGone(f"the agent closed the connection ({error}): its launcher has exited") from None
            if not part:
                raise AgentGone("the agent closed the connection: its launcher has exited")
            self._got += part
            limit = 0
        for body in take_frames(self._got):
            self._take(decode(News, body))

    def _take(self, news: News) -> None:
        match news.kind:
            case "planned":
                self._planned = max(self._planned, news.round)
            case "over":
                self._newest = max(self._newest, news.round)
            case "assignment":
                changed = dict(each.split("=", 1) for each in news.environment)
                if self._environment is None:
                    os.environ.update(changed)
                    self.context = context()
                else:
                    self._environment.update(changed)
                    self.context = context(self._environment)
                self._newest = max(self._newest, self.context.round)


def rounds() -> Rounds:
    """One context after the other, for a script that connects its workers itself and keeps its process between rounds.

    From the first call on the worker is not restarted when nodes come and go, so it must watch for that: where a call
    to a peer fails, or `Rounds.planned` is true, it asks for the next context. Call it once per process.

    Returns:
        an iterator of `Context`. Without elastic-run it has one.

    Raises:
        elastic_run.exceptions.BadEnvironment: the launcher's environment is incomplete.
        elastic_run.exceptions.AgentGone: the launcher has ended.
    """
    return Rounds()


def _connected(agent: str) -> socket.socket:
    try:
        return connected(f"{agent}{SUFFIX}", CONNECT_SECONDS)
    except OSError as error:
        raise AgentGone(f"cannot connect to the agent at {agent}{SUFFIX} ({error}): its launcher has exited") from None


def _connects(descriptor: int) -> bool:
    """Whether it is a connected stream socket: shutting down one that listens would end the process."""
    try:
        if not stat.S_ISSOCK(os.fstat(descriptor).st_mode):
            return False
        with socket.socket(fileno=os.dup(descriptor)) as found:
            if found.type != socket.SOCK_STREAM or found.family == socket.AF_UNIX:
                return False
            if found.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN):
                return False
            found.getpeername()
    except OSError:
        return False
    return True
