"""For a worker that keeps its process when the membership changes: its rank assignment in one round after the other.

    members = elastic_run.membership()
    for world in members:                   # this round, and each that comes
        group = connect(world)              # whatever the worker talks to the others with
        members.hold(group.sockets)         # so that a lost peer cannot keep this worker waiting

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
from dataclasses import dataclass
from typing import Literal

from ...rendezvous.wire.frame import framed, take_frames
from ...rendezvous.wire.values import decode, encode
from .channel import AgentGone
from .context import AGENT, World, world

SUFFIX = "-membership"
"""After the name of the agent's socket: where workers that keep their process reach it."""

LONG_STEP = 0.25
"""Seconds; who takes less for a step has left a broken process group soon enough, and needs not say so."""

BATCH = 200
"""Descriptors in one message; the kernel takes 253."""


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
    """

    kind: Literal["stay", "hold", "formed", "state", "next", "done"]
    round: int = 0
    count: int = 0
    text: str = ""
    seconds: float = 0.0


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


class NotAMember(RuntimeError):
    """This process has no agent that could give it another rank assignment."""


class Membership(Iterator[World]):
    """This worker's rank assignment in the current round, and in those that come.

    Args:
        environment: None: this process's own, which is then brought up to date with each new rank assignment.

    Raises BadEnvironment where the launcher's environment is incomplete.
    """

    def __init__(self, environment: Mapping[str, str] | None = None) -> None:
        given = os.environ if environment is None else environment
        self._environment = dict(given) if environment is not None else None
        self.world = world(given)
        self._begun = False
        self._held: list[tuple[int, int]] = []
        self._got = bytearray()
        self._planned = 0
        self._newest = self.world.round
        self._holds = False
        self._slowest = 0.0
        self._socket: socket.socket | None = None
        if agent := given.get(AGENT, ""):
            self._socket = _connected(agent)
            self._say(Word("stay", self.world.round))

    @property
    def alone(self) -> bool:
        """There is no agent: this rank assignment is the only one that will ever be."""
        return self._socket is None

    @property
    def unassigned(self) -> bool:
        """This process was started before there was a rank for it: it has to take `next` first."""
        return self._socket is not None and self.world.round == 0

    @property
    def planned(self) -> bool:
        """Another round is wanted. Nothing is broken: agree with the others when to leave, and take `next`."""
        self._listen()
        return self._planned > self.world.round

    @property
    def over(self) -> bool:
        """The round is over: the process group is broken, or will be at once."""
        self._listen()
        return self._newest > self.world.round

    def hold(self, sockets: Iterable[socket.socket | int]) -> None:
        """Hands the process group's connected sockets to the agent, which breaks them where a peer is lost.

        Once per process group, or more often where it grows. Sockets that listen are skipped. Raises AgentGone.
        """
        held: list[tuple[int, int]] = []
        for each in sockets:
            descriptor = each if isinstance(each, int) else each.fileno()
            if _connects(descriptor):
                held.append((descriptor, os.fstat(descriptor).st_ino))
        self._held += held
        for begin in range(0, len(held), BATCH):
            part = [descriptor for descriptor, _ in held[begin : begin + BATCH]]
            self._say(Word("hold", self.world.round, count=len(part)), part)

    def formed(self) -> None:
        """Says that the process group stands. Until then the agent is patient with a worker that does not answer."""
        self._say(Word("formed", self.world.round))

    def holds(self, state: bool, seconds: float = 0.0) -> None:
        """Says whether this worker has the job's state: others may go on without a node where nobody has it.

        Where it is never said, nobody goes on without anybody who lives.

        Args:
            state: it has.
            seconds: that a step may take here, more or less. One who is in the middle of a step when the process group
                breaks gets the time to come out of it.

        Raises AgentGone.
        """
        seconds = seconds if seconds >= LONG_STEP else 0.0
        if state != self._holds or not self._slowest / 1.5 <= seconds <= self._slowest * 1.5:
            self._holds, self._slowest = state, seconds
            self._say(Word("state", self.world.round, count=int(state), seconds=seconds))

    def done(self) -> None:
        """Says that the training is over for this worker: joining nodes come too late, and it takes no other rank."""
        with contextlib.suppress(AgentGone):  # then there is nobody who could give it one
            self._say(Word("done", self.world.round))

    @property
    def broken(self) -> bool:
        """Whether a socket of the process group is closed, at this end or at the other."""
        poll = select.poll()
        for descriptor, inode in self._held:
            try:
                if os.fstat(descriptor).st_ino != inode:
                    return True
            except OSError:
                return True
            poll.register(descriptor, select.POLLRDHUP | select.POLLHUP | select.POLLERR)
        return bool(self._held and poll.poll(0))

    def next(self, why: str = "", timeout: float | None = None) -> World:
        """Leaves the process group, whose sockets the caller closes, and waits for the next rank assignment.

        Args:
            why: what was broken, in words; empty where the round was `planned`.
            timeout: seconds; None: for as long as the job waits for its nodes, after which it ends this process.

        Raises NotAMember, AgentGone, and TimeoutError, after which it can be asked for again.
        """
        if self._socket is None:
            raise NotAMember("there is no other rank to take: start the script with elastic-run")
        self._held = []
        self._say(Word("next", self.world.round, text=why[:500]))
        until = None if timeout is None else time.monotonic() + timeout
        asked = self.world.round
        while self.world.round == asked:
            rest = None if until is None else until - time.monotonic()
            if rest is not None and rest <= 0:
                raise TimeoutError(f"no rank assignment in a round after {asked} within {timeout:g} s")
            self._listen(rest, wait=True)
        self._begun = True
        return self.world

    def __next__(self) -> World:
        if not self._begun:
            self._begun = True
            if not self.unassigned:
                return self.world
        if self._socket is None:
            raise StopIteration
        return self.next("" if self.planned or self.unassigned else "the process group is broken")

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
            raise AgentGone(f"the agent has hung up ({error}): its launcher has ended") from None

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
                raise AgentGone(f"the agent has hung up ({error}): its launcher has ended") from None
            if not part:
                raise AgentGone("the agent has hung up: its launcher has ended")
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
                    self.world = world()
                else:
                    self._environment.update(changed)
                    self.world = world(self._environment)
                self._newest = max(self._newest, self.world.round)


def membership() -> Membership:
    """This worker's rank assignments, round after round, for code that builds its own process group; an iterator of
    `World`.

    From the first call on the worker keeps its process when nodes come and go, so it must watch for that: where a call
    to a peer fails, or `planned` says so, it asks for the next rank assignment. One per process.

    Raises BadEnvironment where the launcher's environment is incomplete, and AgentGone.
    """
    return Membership()


def _connected(agent: str) -> socket.socket:
    found = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        found.connect(f"\0{agent.removeprefix('@')}{SUFFIX}")
    except OSError as error:
        found.close()
        raise AgentGone(f"the agent does not listen at {agent}{SUFFIX} ({error}): its launcher has ended") from None
    return found


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
