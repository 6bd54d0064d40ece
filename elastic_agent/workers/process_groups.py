"""The process groups that this node's workers are in, as far as they keep their process when the membership changes.

Such a worker (`adapters/client/rounds.py` is its side) hands over the sockets of its process group. Shutting them down
frees it from whatever call it waits in, and its peers as well: also where a child of a dead worker still has them open,
and where the peer is frozen. Then it asks for its next rank assignment.

A process group may have to be broken in two steps, as the adapter says (`Plain.half_open_seconds`): first its end is
all that can be read, and what is written still goes somewhere; so many seconds later nothing goes either way.

Nothing here decides: `plan.act` and `handover.py` do, by what `members` says.
"""

import asyncio
import contextlib
import errno
import os
import socket
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field

from ...adapters.client.channel import SUFFIX, News, Word
from ...rendezvous.host.local_socket import own_peer
from ...rendezvous.rpc.acceptor import Acceptor
from ...rendezvous.wire.frame import TooLong, framed, take_frames
from ...rendezvous.wire.values import Malformed, decode, encode
from .handover import GroupMembers

_MOST_DESCRIPTORS = 253
"""In one message, as the kernel has it."""


@dataclass(slots=True, eq=False)
class _Stayer:
    """One worker that keeps its process.

    Attributes:
        round: it is in.
        held: duplicates of its process group's sockets.
        formed: its process group stands.
        asked: it has left the process group of `round` and waits for its next rank assignment.
        holds: it has the job's state.
        done: it has trained to the end, and takes no other rank.
        why: what was broken, in its words.
        over: the newest round that has ended its own.
        slowest: seconds between two of its commits, at most; 0: less than matters.
    """

    pid: int
    connection: socket.socket
    round: int = 0
    held: list[socket.socket] = field(default_factory=list[socket.socket])
    formed: bool = False
    asked: bool = False
    holds: bool = False
    done: bool = False
    why: str = ""
    told: int = 0
    over: int = 0
    slowest: float = 0.0
    got: bytearray = field(default_factory=bytearray)
    rights: list[int] = field(default_factory=list[int])


class ProcessGroups:
    """Listens for the workers of one agent that keep their process.

    Args:
        changed: is called when one of them has said something.
        pid_of: the worker of a local rank; None where there is none. A service speaks for such.
        half_open_seconds: between the two steps in which a process group is broken.

    Attributes:
        short: this process may not open as many files as these process groups need; some of them it cannot break.
    """

    def __init__(
        self, changed: Callable[[], None], pid_of: Callable[[int], int | None], half_open_seconds: float
    ) -> None:
        self._changed = changed
        self._half_open_seconds = half_open_seconds
        self._pid_of = pid_of
        self.short = False
        self._acceptor: Acceptor | None = None
        self._stayers: dict[int, _Stayer] = {}  # by pid
        self._silent: list[_Stayer] = []  # connected, and has not said whose process it keeps
        self._half_open: list[socket.socket] = []

    def start(self, address: str) -> None:
        """Listens beside the agent's server for workers, whose address that is. Raises OSError."""
        listening = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            listening.bind(f"\0{address.removeprefix('@')}{SUFFIX}")
            self._acceptor = Acceptor(listening, self._let_in, self._is_full)
            self._acceptor.start(1024)
        except OSError:
            listening.close()
            raise

    def close(self) -> None:
        """Stops listening, and hangs up on every worker."""
        if self._acceptor is not None:
            self._acceptor.close()
        for pid in tuple(self._stayers):
            self.forget(pid)
        for each in tuple(self._silent):
            self._drop(each)
        self._end(self._half_open)

    def members(self, pids: Collection[int]) -> GroupMembers:
        """What those of these have said that are connected."""
        found = {pid: stayer for pid in pids if (stayer := self._stayers.get(pid))}
        staying = {pid: stayer for pid, stayer in found.items() if not stayer.done}
        return GroupMembers(
            {pid: stayer.slowest for pid, stayer in staying.items()},
            holding=frozenset(pid for pid, stayer in staying.items() if stayer.holds),
            done=frozenset(found.keys() - staying.keys()),
            waiting=frozenset(pid for pid, stayer in found.items() if stayer.asked),
            forming=frozenset(pid for pid, stayer in staying.items() if not stayer.formed and not stayer.asked),
            broke=next((stayer.why for stayer in found.values() if stayer.asked and stayer.why), ""),
        )

    def plan(self, pids: Collection[int], round: int) -> None:
        """Tells these that another round is wanted: they leave the process group together, at a step's end."""
        for pid in pids:
            found = self._stayers.get(pid)
            if found and found.told < round:
                found.told = round
                self._say(found, News("planned", round))

    def break_groups(self, pids: Collection[int], round: int) -> None:
        """Breaks the process groups of these, whose round is over since `round`; this frees who waits for a peer."""
        for pid in pids:
            if found := self._stayers.get(pid):
                found.over = max(found.over, round)
                self._say(found, News("over", round))
                self._break(found)

    def assign(self, pid: int, round: int, environment: Mapping[str, str]) -> bool:
        """Gives a worker that waits its rank assignment in `round`; False where it has gone meanwhile."""
        found = self._stayers.get(pid)
        if found is None or not found.asked:
            return False
        found.round, found.asked, found.formed, found.why = round, False, False, ""
        return self._say(
            found, News("assignment", round, tuple(f"{name}={value}" for name, value in environment.items()))
        )

    def forget(self, pid: int) -> None:
        """This worker has ended: its peers are to hear of it at once."""
        found = self._stayers.pop(pid, None)
        if found is not None:
            self._drop(found)

    def _drop(self, found: _Stayer) -> None:
        if found in self._silent:
            self._silent.remove(found)
        asyncio.get_running_loop().remove_reader(found.connection)
        found.connection.close()
        for descriptor in found.rights:
            os.close(descriptor)
        self._part(found)

    def forget_all_but(self, pids: Collection[int]) -> None:
        """All others have ended, or are about to."""
        for pid in self._stayers.keys() - pids:
            self.forget(pid)

    # What they say.

    def _is_full(self, error: OSError) -> None:
        """Nobody can be let in for a while."""
        if error.errno in (errno.EMFILE, errno.ENFILE):
            self.short = True
            self._changed()

    def _let_in(self, connection: socket.socket) -> None:
        pid = own_peer(connection)
        if pid is None:
            connection.close()
            return
        stayer = _Stayer(pid, connection)
        self._silent.append(stayer)
        asyncio.get_running_loop().add_reader(connection, self._hear, stayer)

    def _hear(self, stayer: _Stayer) -> None:
        try:
            data, descriptors, flags, _ = socket.recv_fds(
                stayer.connection, 65536, _MOST_DESCRIPTORS, socket.MSG_CMSG_CLOEXEC
            )
        except BlockingIOError:
            return
        except OSError:
            data, descriptors, flags = b"", [], 0
        self.short = self.short or bool(flags & socket.MSG_CTRUNC)
        stayer.rights += descriptors
        if not data:
            self._hung_up(stayer)
            self._changed()
            return
        stayer.got += data
        try:
            for body in take_frames(stayer.got):
                self._take(stayer, decode(Word, body))
        except (Malformed, TooLong):
            self._leave(stayer)  # no worker of ours
        self._changed()

    def _hung_up(self, stayer: _Stayer) -> None:
        """It stays no longer. One that has trained to the end still has: its process ends some time after this."""
        if not stayer.done:
            self._leave(stayer)
            return
        asyncio.get_running_loop().remove_reader(stayer.connection)
        self._part(stayer)

    def _leave(self, stayer: _Stayer) -> None:
        if self._stayers.get(stayer.pid) is stayer:
            del self._stayers[stayer.pid]
        self._drop(stayer)

    def _take(self, stayer: _Stayer, word: Word) -> None:
        match word.kind:
            case "stay":
                pid = stayer.pid if word.local_rank is None else self._pid_of(word.local_rank)
                if pid is None:  # it has ended meanwhile
                    self._leave(stayer)
                    return
                if stayer in self._silent:
                    self._silent.remove(stayer)
                elif pid == stayer.pid:
                    return
                self.forget(pid)  # it has begun anew, in the same process
                stayer.pid, stayer.round = pid, word.round
                self._stayers[pid] = stayer
            case "hold":
                taken, stayer.rights = stayer.rights[: word.count], stayer.rights[word.count :]
                held = [socket.socket(fileno=descriptor) for descriptor in taken]
                stayer.held += held
                if word.round != stayer.round or stayer.asked or stayer.over > word.round:
                    self._break(stayer)
            case "formed":
                stayer.formed, stayer.done = word.round == stayer.round, False
            case "state":
                stayer.holds, stayer.slowest = word.count > 0, word.seconds
            case "done":
                stayer.done = True
            case "next":
                if word.round == stayer.round:
                    stayer.asked, stayer.why = True, word.text
                    self._part(stayer)

    def _say(self, stayer: _Stayer, news: News) -> bool:
        try:
            stayer.connection.sendall(framed(encode(news)))
        except OSError:  # gone, or it has not read for very long: either way its end will be seen
            return False
        return True

    def _break(self, stayer: _Stayer) -> None:
        """Its process group, in which it may be waiting."""
        self._shut(stayer, socket.SHUT_RD)

    def _part(self, stayer: _Stayer) -> None:
        """Its process group, of which it is no part any more: its peers hear so."""
        self._shut(stayer, socket.SHUT_WR)

    def _shut(self, stayer: _Stayer, how: int) -> None:
        if not stayer.held:
            return
        broken, stayer.held = stayer.held, []
        for each in broken:
            with contextlib.suppress(OSError):
                each.shutdown(how)
        self._half_open += broken
        asyncio.get_running_loop().call_later(self._half_open_seconds, self._end, broken)

    def _end(self, broken: Sequence[socket.socket]) -> None:
        for each in broken:
            with contextlib.suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
            each.close()
        self._half_open = [each for each in self._half_open if each.fileno() >= 0]
