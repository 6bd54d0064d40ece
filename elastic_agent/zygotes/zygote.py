"""The agent's side of a warm interpreter (`warm/`): start it, hear when it is ready, have workers forked, replace it.

A zygote is started with the very command line of a worker, so a fork of it differs from a fresh interpreter in nothing
that a script could see, but in the time that it takes. Its death costs nothing: workers are children of the agent, and
whoever finds no zygote starts a fresh interpreter instead.
"""

import asyncio
import contextlib
import os
import signal
import socket
import subprocess
from collections.abc import Mapping, Sequence

from ...rendezvous.base.frozen import dataclass, field
from ..warm.frames import pack, unpack
from .seed import Recipe, Seed

FORK_SECONDS = 10.0
"""How long a zygote may take to fork the workers that it was told to; a machine that swaps needs seconds."""

GREETING_SECONDS = 5.0
"""How long a zygote may take to read what it is told first, where that is longer than a socket holds."""

END_SECONDS = 2.0
"""How long a process that got SIGKILL is waited for."""

BATCH = 100
"""Workers in one order: a message carries at most 253 descriptors, and each worker has two."""


class NotForked(Exception):
    """The workers could not be forked; the message says why. None of them runs."""


class Outdated(NotForked):
    """What was imported ahead is not what the workers would import now; another interpreter may be made."""


@dataclass(slots=True)
class Account:
    """What became of the imports ahead.

    Attributes:
        imported: done.
        trying: the module that is under way; empty: none is.
        refused: (what, why, where in the script) of those that the workers have to import themselves.
        ended: (where, what) of the first statement of the script after which nothing is imported ahead.
        modules: how many modules are loaded.
    """

    imported: list[str] = field(default_factory=list[str])
    trying: str = ""
    refused: list[tuple[str, str, str]] = field(default_factory=list[tuple[str, str, str]])
    ended: tuple[str, str] = ("", "")
    modules: int = 0


@dataclass(frozen=True, slots=True)
class Begin:
    """When a worker begins, where the module that workers meet through was imported ahead; else at once.

    Attributes:
        meets_through: that module; empty: there is none.
        held: seconds that it is held at most; it begins before when it is let go. 0: it is not held.
        later: seconds that it waits where it is not held.
    """

    meets_through: str = ""
    held: float = 0.0
    later: float = 0.0


AT_ONCE = Begin()


class Zygote:
    """One warm interpreter. All methods are called on the loop's thread, which must be the one that started the loop.

    Args:
        recipe: what it is made of.
        seed: its process, which stays the caller's where it cannot be told that (OSError).
    """

    def __init__(self, recipe: Recipe, seed: Seed) -> None:
        self.account = Account()
        self.state = "warming"
        self.why = ""
        self.session = seed.process.pid
        self._loop = asyncio.get_running_loop()
        self._settled = asyncio.Event()
        self._answer: asyncio.Future[list[int]] | None = None
        self._rest = b""
        self._process = seed.process
        self._socket: socket.socket | None = seed.connection
        words = [recipe.kind, recipe.target, recipe.news, ",".join(sorted(recipe.per_worker))]
        words.append("none" if recipe.preload is None else ",".join(recipe.preload))
        self._socket.settimeout(GREETING_SECONDS)  # a long list does not fit into the socket before it is read
        self._socket.sendall(b"".join(pack(_encoded(frame)) for frame in (words, *recipe.table, ("begin",))))
        self._socket.setblocking(False)
        self._loop.add_reader(self._socket.fileno(), self.hear)

    @property
    def usable(self) -> bool:
        """It is warm and can be told to fork."""
        return self.state == "warm"

    async def settled(self) -> None:
        """Wait until it is warm, or known not to become so."""
        await self._settled.wait()

    async def fork(
        self, streams: Sequence[tuple[int, int]], environments: Sequence[Mapping[str, str]], begins: Sequence[Begin]
    ) -> list[int]:
        """The pids of new workers, which are children of this process and lead sessions of their own.

        Args:
            streams: the writing ends of each worker's stdout and stderr, which stay the caller's; at most BATCH.
            environments: of each worker.
            begins: when each of them does; all or none are held.

        Raises NotForked. A caller that is cancelled gets no pids; the workers are found by their tag.
        """
        if self._socket is None or self._answer is not None or not self.usable:
            raise NotForked(self.why or "it is not ready")
        meets, held = (begins[0].meets_through, begins[0].held) if begins else ("", 0.0)
        words = ["fork", str(os.getpid()), meets, _milliseconds(held), str(len(begins))]
        data = pack(_encoded(words))
        for begin, environment in zip(begins, environments, strict=True):
            entries = (f"{name}={value}" for name, value in environment.items())
            data += pack(_encoded([_milliseconds(begin.later), *entries]))
        descriptors = [descriptor for pair in streams for descriptor in pair]
        answer = self._answer = self._loop.create_future()
        why = "the request to start it was withdrawn"
        try:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(FORK_SECONDS):
                    sent = socket.send_fds(self._socket, [data], descriptors)
                    await self._loop.sock_sendall(self._socket, data[sent:])
                    await asyncio.wait([answer])  # and not itself, which a timeout would cancel
            if not answer.done():
                why = f"it did not answer for {FORK_SECONDS:g} s"
                self._last_words(why)
            if not answer.done():
                raise NotForked(why)
            why = ""
            return answer.result()
        except OSError as error:
            why = str(error)
            raise NotForked(why) from None
        finally:
            self._answer = None
            if why:
                self.end(why)  # nobody knows what it does with the order

    def let_go(self) -> None:
        """Has held workers begin, of which it was told to fork."""
        if self._socket is not None and self.state in ("warm", "retired"):
            with contextlib.suppress(OSError):  # they begin by themselves
                self._socket.send(pack([b"go"]))

    def _last_words(self, why: str) -> None:
        """Takes what it has said and nobody has heard, as where this process was stopped, and lets it say no more.

        An answer that is not there now can never be given, so no worker gets to run of which nobody knows.
        """
        if self._socket is None:
            return
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RD)
            if data := self._socket.recv(65536):
                self._take(data)
        self.retire(why)  # it may be at work on the rest of the order

    def retire(self, why: str) -> None:
        """Has it end by itself, as soon as it has done what it was told before."""
        if self._socket is None or self.state == "retired":
            return
        self.state, self.why = "retired", self.why or why
        self._settled.set()
        with contextlib.suppress(OSError):  # it has ended already, which will be heard
            self._socket.shutdown(socket.SHUT_WR)

    def end(self, why: str = "it was ended") -> None:
        """Ends the process."""
        if self.state == "ended":
            return
        self.state, self.why = "ended", self.why or why
        self._settled.set()
        if self._socket is not None:
            self._loop.remove_reader(self._socket.fileno())
            self._socket.close()
            self._socket = None
        if self._answer is not None and not self._answer.done():
            self._answer.set_exception(NotForked(self.why))
        if self.session:  # itself, and forks that are no workers yet
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self.session, signal.SIGKILL)
        self._process.poll()

    def close(self) -> None:
        """Ends it and collects its first process, which is long gone or was killed."""
        self.end()
        with contextlib.suppress(subprocess.TimeoutExpired):  # the kernel has it
            self._process.wait(END_SECONDS)

    def hear(self) -> None:
        """Takes what it has said, at most one portion, without waiting."""
        if self._socket is None:
            return
        try:
            data = self._socket.recv(65536)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if not data:
            self.session = 0  # nothing is left of it, and its number may go to others
            self.end("it exited")
            return
        self._take(data)

    def _take(self, data: bytes) -> None:
        frames, self._rest = unpack(self._rest + data)
        for words in frames:
            self._heard([os.fsdecode(word) for word in words])

    def _heard(self, words: list[str]) -> None:
        self._process.poll()  # the first of its processes has handed over, perhaps
        match words:
            case ["trying", name]:
                self.account.trying = name
            case ["imported", name]:
                self.account.imported.append(name)
                self.account.trying = ""
            case ["refused", name, why, where]:
                self.account.refused.append((name, why, where))
                self.account.trying = ""
            case ["ended", where, what]:
                self.account.ended = (where, what)
            case ["unfit", why]:
                self.why = f"Python's start-up {why}"
            case ["ready", modules]:
                self.account.modules = int(modules)
                self.state = "warm"
                self._settled.set()
            case ["forked", *pids] if self._answer is not None and not self._answer.done():
                self._answer.set_result([int(pid) for pid in pids])
            case ["failed", why] if self._answer is not None and not self._answer.done():
                self._answer.set_exception(NotForked(f"it cannot fork: {why}"))
            case ["outdated", why] if self._answer is not None and not self._answer.done():
                self._answer.set_exception(Outdated(why))
            case _:
                pass


def _milliseconds(seconds: float) -> str:
    return str(round(1000 * seconds))


def _encoded(words: Sequence[str]) -> list[bytes]:
    return [os.fsencode(word) for word in words]
