"""Processes that a framework wants beside its workers (a tracker, a coordinator): started, told, watched, ended.

A service runs in the workers' interpreter, in a session of its own, dies with its agent by the kernel's signal and by
the guardian, and prints with a prefix, as workers do. It is told of each round by a line of JSON on its stdin, and says
on its stdout, by a line with the one word "ready", that workers may start. What it means for a round when one dies is
decided by `plan.report`.
"""

import asyncio
import contextlib
import os
import re
import signal
import subprocess
from collections.abc import Callable, Iterable, Mapping, Sequence

from ...adapters.contract import Lifetime, Service
from ...rendezvous.base.frozen import dataclass
from ...rendezvous.wire.fields import signal_name
from ..logs.backpressure import Backpressure
from ..logs.output import Lines, Output, StreamName
from ..processes.guard import Guardian
from ..processes.guardian import service_tag
from ..zygotes.seed import Limits, shimmed, tagged
from .failure import advice, last_line
from .streams import TAIL_BYTES, Printed
from .worker_ending import KILL_SECONDS
from .worker_starter import StartFailed

READY = b"ready"
"""The line by which a service says that it serves the round of which it was last told; words may follow a colon."""

GRACE_SECONDS = 2.0
"""Between SIGTERM and SIGKILL for a service whose workers had time to end, too."""


class ReadyLines(Lines):
    """The way for a service's stdout: a line that is READY is heard and not shown, all else goes on.

    Args:
        lines: takes what is shown, as the lines of workers.
        ready: is called for a line that is READY, with the words after its colon.
    """

    def __init__(self, lines: Lines, ready: Callable[[str], None]) -> None:
        self._lines = lines
        self._ready = ready
        self._begun = b""  # of a line that may become READY
        self._shows = False  # the beginning of the current line is shown already

    def feed(self, data: bytes) -> None:
        parts, self._begun = re.findall(rb"[^\n]*\n|[^\n]+", self._begun + data), b""
        for part in parts:
            ends = part.endswith(b"\n")
            word, _, words = part.strip().partition(b":")
            if not self._shows and ends and word == READY and (not words or words.startswith(b" ")):
                self._ready(words.decode(errors="replace").strip())
            elif not self._shows and not ends and _may_be_ready(part):
                self._begun = part
            else:
                self._lines.feed(part)
                self._shows = not ends

    def end_line(self) -> None:
        begun, self._begun = self._begun, b""
        self._lines.feed(begun)
        self._lines.end_line()

    def close(self) -> None:
        self.end_line()
        self._lines.close()


def _may_be_ready(part: bytes) -> bool:
    """Whether this beginning of a line may be that of a line with READY."""
    return (READY + b"\r").startswith(part) or (part.startswith(READY + b":") and len(part) <= TAIL_BYTES)


class _Running:
    """One service that was started; `open_lines` gives the way for each of its streams, `changed`: see Services."""

    def __init__(
        self,
        service: Service,
        popen: "subprocess.Popen[bytes]",
        open_lines: Callable[[str, StreamName], Lines],
        changed: Callable[[], None],
    ) -> None:
        assert popen.stdout is not None
        assert popen.stderr is not None
        self.service = service
        self.popen = popen
        self.pidfd = os.pidfd_open(popen.pid)
        self.ready = asyncio.Event()  # or it has ended
        self.said = ""  # after READY
        self.ended = asyncio.Event()
        with popen.stdout as out, popen.stderr as err:
            self.outputs = (
                Printed(os.dup(out.fileno()), ReadyLines(open_lines(service.name, "stdout"), self._is_ready)),
                Printed(os.dup(err.fileno()), open_lines(service.name, "stderr")),
            )
        self.stdin: asyncio.WriteTransport | None = None
        self.code: int | None = None  # once it is collected: its pid may have a new owner
        self.stopped = False
        self._changed = changed

    @property
    def failure(self) -> str:
        """How it died, in words; empty where it lives, was stopped, or has done its work (exit code 0)."""
        code = self.code
        if code is None or code == 0 or self.stopped:
            return ""
        how = f"died by {signal_name(-code)} ({-code})" if code < 0 else f"exited with code {code}"
        tail = last_line(self.outputs[1].tail)
        return f"the service {self.service.name} (pid {self.popen.pid}) {how}{f': {tail}' if tail else ''}"

    @property
    def continues(self) -> bool:
        """It lives from round to round, or has done its work for all of them."""
        return self.service.lifetime == "job" and self.code in (None, 0)

    def tell(self, line: bytes, *, answers: bool) -> None:
        if answers:
            self.ready.clear()
        if self.code is None and self.stdin is not None:
            self.stdin.write(line)
        else:
            self.ready.set()

    def _is_ready(self, said: str) -> None:
        self.said = said
        self.ready.set()
        self._changed()

    def signal(self, number: int) -> None:
        if self.code is None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self.popen.pid, number)


@dataclass(eq=False, repr=False)
class Services:
    """The services of one agent.

    Args:
        tag: the agent's; every process of a service carries it.
        output: where what they print goes.
        guardian: is told of every session.
        apart: sessions that a stop of the workers leaves alone; those of services are added.
        limits: the soft limits; None: this process's own.
        changed: is called when one has ended, or says that it is ready.
    """

    _tag: str
    _output: Output
    _guardian: Guardian
    _apart: set[int]
    _limits: Limits | None
    _changed: Callable[[], None]

    def __post_init__(self) -> None:
        self._running: list[_Running] = []
        self._sessions: set[int] = set()
        self._backpressure = Backpressure(self._output, self._stop_reading, self._read_again)
        self._loop = asyncio.get_running_loop()

    @property
    def failure(self) -> str:
        """How the first of them died, in words; empty where none has."""
        return next((each.failure for each in self._running if each.failure), "")

    @property
    def alive(self) -> int:
        """How many of them have not ended."""
        return sum(each.code is None for each in self._running)

    @property
    def sessions(self) -> frozenset[int]:
        """Of all that were ever started: what is left in them ends with the workers, even after a success."""
        return frozenset(self._sessions)

    @property
    def said(self) -> Mapping[str, str]:
        """The words that each of them said last with READY, by its name."""
        return {each.service.name: each.said for each in self._running}

    async def enter(
        self, wanted: Sequence[Service], line: bytes, python: Sequence[str], environment: Mapping[str, str]
    ) -> None:
        """Has these services, and no others, run and know of a round; `ready` waits for them.

        Those that run already, and have not ended, go on. Raises StartFailed, with words, where one cannot be started.

        Args:
            wanted: on this node.
            line: what they are told of the round.
            python: the workers' interpreter, and its flags.
            environment: what the workers inherit.
        """
        await self._end([each for each in self._running if not (each.service in wanted and each.continues)], 0.0)
        there = {each.service for each in self._running}
        for service in wanted:
            if service not in there:
                await self._start(service, python, environment)
        self.tell(line)

    async def ready(self) -> None:
        """Returns when all are ready for the round of which they were last told, or late, which is printed.

        Raises StartFailed, with words, where one has died.
        """
        began = self._loop.time()
        for each in self._running:
            left = began + each.service.ready_seconds - self._loop.time()
            try:
                async with asyncio.timeout(max(left, 0.0)):
                    await each.ready.wait()
            except TimeoutError:
                self._output.say(
                    f"the service {each.service.name} (pid {each.popen.pid}) has not said that it is ready within "
                    f"{each.service.ready_seconds:g} s: starting the workers without waiting for it"
                )
            if each.failure:
                raise StartFailed(each.failure)

    @property
    def services(self) -> tuple[Service, ...]:
        """Those that run."""
        return tuple(each.service for each in self._running)

    def tell(self, line: bytes, *, answers: bool = True) -> None:
        """Those that run hear of a round into which the workers continue as they are.

        `answers`: each says then that it is ready for it.
        """
        for each in self._running:
            each.tell(line, answers=answers)

    async def end(self, lifetimes: Iterable[Lifetime], grace: float) -> None:
        """Ends those of these lifetimes: SIGTERM, SIGKILL after `grace` seconds; 0: SIGKILL at once."""
        await self._end([each for each in self._running if each.service.lifetime in lifetimes], grace)

    def pause(self) -> None:
        """Stops them where they are, as Ctrl-Z does."""
        self._signal(self._running, signal.SIGSTOP)

    def resume(self) -> None:
        """Lets them continue."""
        self._signal(self._running, signal.SIGCONT)

    async def _start(self, service: Service, python: Sequence[str], environment: Mapping[str, str]) -> None:
        popen = self._spawn(service, python, environment)
        self._apart.add(popen.pid)
        self._sessions.add(popen.pid)
        self._guardian.watch(popen.pid)
        made = _Running(service, popen, self._output.open_service, self._changed)
        self._running.append(made)
        self._loop.add_reader(made.pidfd, self._look, made)
        if not self._backpressure.stopped:
            for output in made.outputs:
                output.listen(self._backpressure.look)
        made.stdin, _ = await self._loop.connect_write_pipe(asyncio.BaseProtocol, popen.stdin)

    def _spawn(
        self, service: Service, python: Sequence[str], environment: Mapping[str, str]
    ) -> "subprocess.Popen[bytes]":
        try:
            return subprocess.Popen(
                shimmed((*python, *service.arguments), self._limits),
                env=tagged(tagged(environment, self._tag), service_tag(self._tag)),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                start_new_session=True,
            )
        except OSError as error:
            raise StartFailed(f"cannot start the service {service.name}: {error}{advice(error)}") from error

    def _stop_reading(self) -> None:
        for output in self._open():
            output.rest()

    def _read_again(self) -> None:
        for output in self._open():
            output.listen(self._backpressure.look)

    def _open(self) -> list[Printed]:
        return [output for each in self._running for output in each.outputs if not output.closed]

    def _look(self, each: _Running) -> None:
        """Notes its end."""
        found = os.waitid(os.P_PIDFD, each.pidfd, os.WEXITED | os.WNOHANG)
        if found is None:
            return
        code = found.si_status if found.si_code == os.CLD_EXITED else -found.si_status
        each.popen.returncode = code  # it must not wait for this pid again, which may have a new owner
        self._apart.discard(each.popen.pid)  # what it leaves behind ends with the workers
        self._loop.remove_reader(each.pidfd)
        os.close(each.pidfd)
        for output in each.outputs:
            output.drain()
            output.lines.end_line()
        each.code = code
        if each.failure and each.ready.is_set():  # else who waits for it says that the round could not begin
            self._output.say(each.failure)
        each.ended.set()
        each.ready.set()
        self._changed()

    async def _end(self, which: Sequence[_Running], grace: float) -> None:
        if not which:
            return
        for each in which:
            each.stopped = each.stopped or each.code is None
            if grace:
                each.signal(signal.SIGTERM)
        if grace:
            await self._ended(which, grace)
        self._signal(which, signal.SIGKILL)
        await self._ended(which, KILL_SECONDS)
        for each in which:
            if each.code is None:
                self._output.say(f"the service {each.service.name} (pid {each.popen.pid}) does not die of SIGKILL")
            for output in each.outputs:
                output.close()
            if each.stdin is not None and not each.stdin.is_closing():
                each.stdin.abort()
            self._apart.discard(each.popen.pid)
            self._guardian.forget(each.popen.pid)
            self._running.remove(each)

    async def _ended(self, which: Sequence[_Running], seconds: float) -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                for each in which:
                    await each.ended.wait()

    @staticmethod
    def _signal(which: Iterable[_Running], number: int) -> None:
        for each in which:
            each.signal(number)
