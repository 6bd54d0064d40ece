"""The worker processes of this machine: start them, hear at once when one ends, and leave nothing of them behind.

A worker is a fork of a warm interpreter (`zygotes/`) where there is one and it fits, and else a fresh process. Either
is a child of the agent, leads a session of its own and is told to the guardian. Its end is heard through a pidfd, never
by polling, and its exit code is collected by that very handle. What it wrote is in its pipes by the time it has ended,
so an `Exit` is complete the moment it appears, also where a grandchild holds the pipes open.

Stopping is by evidence, not by hope: after the grace, everything that is in a worker's session, carries the agent's tag
or descends from such a process is killed, until the kernel shows none. The agent is a subreaper, so that orphans (a
double fork) stay below it, where they can be found; `Reaper` collects them when they end.

All of this runs on the event loop's thread. That thread has to live as long as the workers: the kernel's parent-death
signal follows the thread that forked.
"""

import asyncio
import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import Path

from ...rendezvous.base.frozen import dataclass, replace
from ...rendezvous.member import Exit, out_of_memory
from ...rendezvous.store.embedded import KEPT_VARIABLE
from ..diagnosis.running import Running
from ..logs.backpressure import Backpressure
from ..logs.output import Output, StreamName
from ..processes.ending import describe_state, ended, kill
from ..processes.guard import Guardian
from ..processes.guardian import (
    TRACKER_SECONDS,
    Mercy,
    Process,
    belonging,
    command_of,
    descendants,
    is_manager,
    is_tracker,
    process,
    send,
    service_tag,
    started_with,
    waited,
    words_of,
)
from ..processes.out_of_memory import OomKills
from ..processes.reaper import Reaper
from ..zygotes.choice import Zygotes
from ..zygotes.seed import Limits, Recipe, Seed, shimmed, tagged
from ..zygotes.zygote import AT_ONCE, Begin, NotForked
from .failure import STOOD_STILL, advice, last_line, last_words, read_failure
from .streams import Printed, open_stream

KILL_SECONDS = 10.0
"""How long a stop waits for processes to die of SIGKILL: one in the kernel's hands (state D) may never."""

HELD_SECONDS = 1.0
"""Between two looks at a worker that has ended and that a tracer (a debugger, strace) keeps from its parent."""

OOM_SECONDS = 1.0
"""Between two looks at how many processes the kernel has killed on this machine for lack of memory."""

NAMED = 5
"""Of the processes that live on, so many are named."""

DRAIN = Path(__file__).with_name("drain.py").absolute()

_UNSEEN = -1

_TERM = signal.SIGTERM
"""By its own name, because `Workers.signal` hides the module inside its class."""

SHOWN_BYTES = 4096
"""Of each stream's tail, where a worker that runs is looked at."""

FIRST_PROCESS = 1
"""The pid that is given every orphan of its namespace."""


class StartFailed(Exception):
    """This machine could not start the workers (its message says why); none of them runs."""


@dataclass(frozen=True, slots=True)
class WorkerSpec:
    """One worker to start.

    Attributes:
        argv: the whole command, an interpreter included where it needs one.
        env: its whole environment; the agent's tag is added.
        error_file: where its library may describe its error (torch's TORCHELASTIC_ERROR_FILE), or None.
        begin: when a fork of the warm interpreter begins.
    """

    round: int
    rank: int
    local_rank: int
    argv: tuple[str, ...]
    env: Mapping[str, str]
    error_file: Path | None = None
    begin: Begin = AT_ONCE


class _Worker:
    """One started worker."""

    def __init__(
        self, spec: WorkerSpec, pid: int, out: Printed, err: Printed, popen: "subprocess.Popen[bytes] | None" = None
    ) -> None:
        self.spec = spec
        self.popen = popen
        self.pid = pid
        self.pidfd = os.pidfd_open(pid)
        self.out = out
        self.err = err
        self.born = time.monotonic()
        self.ended = asyncio.Event()
        self.counts = True
        self.given_up = False
        self.condemned = ""  # why it was killed, where the job's diagnosis led to that
        self.again: asyncio.TimerHandle | None = None

    @property
    def pipes(self) -> tuple[tuple[StreamName, Printed], ...]:
        """Its two streams."""
        return ("stdout", self.out), ("stderr", self.err)

    def end_output(self) -> None:
        """What it left in its pipes is read, and what still holds them is not listened to."""
        for _, pipe in self.pipes:
            pipe.drain()
            pipe.close()

    def collect(self) -> int | None:
        """Its exit code, or minus the signal, if it has ended; closes the handle."""
        found = os.waitid(os.P_PIDFD, self.pidfd, os.WEXITED | os.WNOHANG)
        if found is None:
            return None
        return self.settle(found.si_status if found.si_code == os.CLD_EXITED else -found.si_status)

    def settle(self, code: int) -> int:
        """It has ended with `code`; closes the handle."""
        if self.popen is not None:
            # It must not wait for this pid again, which may have a new owner.
            self.popen.returncode = code
        os.close(self.pidfd)
        return code


class Workers:
    """The workers of one round after the other.

    Args:
        tag: the agent's incarnation; no comma.
        output: where what they print goes.
        guardian: is told of every session.
        seed: the process of a warm interpreter that runs already.
        limits: the workers' soft limits; None: this process's own.
        alone: nothing else in this process starts others, so that every daemon which appears below it is a worker's.
    """

    def __init__(
        self,
        *,
        tag: str,
        output: Output,
        guardian: Guardian,
        seed: Seed | None = None,
        limits: Limits | None = None,
        kill_seconds: float = KILL_SECONDS,
        alone: bool = False,
    ) -> None:
        self._tag = tag
        self._output = output
        self._guardian = guardian
        self._seed = seed
        self._limits = limits
        self._kill_seconds = kill_seconds
        self._since: int | None = None if alone else -1  # when the first worker was started; -1: no daemon is sought
        self.reaper = Reaper()
        self.apart: set[int] = set()  # sessions that the agent ends by itself: a stop leaves them alone
        self._current: list[_Worker] = []
        self._gone: list[_Worker] = []  # not kept, and not yet ended
        self._exits: list[Exit] = []
        self._unkillable: dict[int, int] = {}  # pid -> when it was started; _UNSEEN: its handle alone tells of it
        self._ends_only: frozenset[int] | None = None  # sessions; None: whatever belongs to the workers
        self._stopping = False
        self._version = 0
        self._seen = 0
        self._changed = asyncio.Event()
        self._deadline = float("inf")
        self._hurry = asyncio.Event()
        self._first: int = _TERM
        self._told: set[int] = set()  # of the processes that outlived their worker, in this stop
        self._ending: asyncio.Task[None] | None = None
        self._backpressure = Backpressure(output, self._stop_reading, self._read_again)
        self._oom = OomKills()
        self._oom_look: asyncio.TimerHandle | None = None
        self._zygotes: Zygotes | None = None

    @property
    def exits(self) -> tuple[Exit, ...]:
        """The ends of the current workers, in the order of arrival."""
        return tuple(self._exits)

    @property
    def alive(self) -> int:
        """How many of the current workers have not ended, without those that could not be killed."""
        return len(self.pids)

    @property
    def pids(self) -> dict[int, int]:
        """The living workers: local rank to pid. Those that could not be killed are in `unkillable`."""
        return {
            worker.spec.local_rank: worker.pid
            for worker in self._current
            if not worker.ended.is_set() and not worker.given_up
        }

    @property
    def running(self) -> tuple[Running, ...]:
        """The current workers, those that have ended included, as they are looked at from outside."""
        ends = {each.pid: each for each in self._exits}
        return tuple(self._as_seen(worker, ends.get(worker.pid)) for worker in self._current if not worker.given_up)

    def _as_seen(self, worker: _Worker, end: Exit | None) -> Running:
        ended = end.status if end else None
        output = sum(pipe.size for _, pipe in worker.pipes)
        tail = worker.out.tail[-SHOWN_BYTES:] + b"\n" + worker.err.tail[-SHOWN_BYTES:]
        return Running(worker.spec.rank, worker.spec.local_rank, worker.pid, ended, output, tail)

    def condemn(self, rank: int, why: str) -> bool:
        """Kills the worker of that rank, because the job stood still, and `why`; False where it has none."""
        for worker in self._current:
            if worker.spec.rank == rank and not worker.ended.is_set():
                worker.condemned = f"{STOOD_STILL}{why}"
                _send(worker, signal.SIGKILL)
                return True
        return False

    def used(self, pids: Collection[int]) -> float:
        """Seconds for which these workers and their living children have used a processor, or waited for one.

        On a busy machine who computes may get little of it. 0 where that cannot be seen.
        """
        with contextlib.suppress(OSError):
            own = [each for pid in pids if (each := process(pid))]
            found = [*own, *(each for pid in pids for each in descendants(pid))]
            return sum(each.used + waited(each.pid) for each in found)
        return 0.0

    @property
    def unkillable(self) -> tuple[int, ...]:
        """Pids that the last stop could not kill within its bound and that are still there."""
        try:
            found = [process(pid) for pid in self._unkillable]
        except OSError:
            return tuple(self._unkillable)
        return tuple(each.pid for each in found if each and each.alive and self._is_unkillable(each))

    def _is_unkillable(self, found: Process) -> bool:
        """It was given up before, and is no later owner of that pid."""
        return self._unkillable.get(found.pid) in (found.started, _UNSEEN)

    async def changed(self) -> None:
        """Wait until `exits` or `alive` differs from what it was at the last call (or at the start). One caller."""
        while self._seen == self._version:
            self._changed.clear()
            await self._changed.wait()
        self._seen = self._version

    def warm(self, recipe: Recipe) -> None:
        """Begin to make the warm interpreter that workers are forked from; without it each is a fresh one.

        `recipe.environment` is what the workers have in common, without the agent's tag.
        """
        self.reaper.start()
        seed, self._seed = self._seed, None
        made = replace(recipe.tagged(self._tag), limits=self._limits)
        self._zygotes = Zygotes(made, self._output.say, seed)
        self._zygotes.start()

    async def ready(self) -> None:
        """Wait until a start would wait for nothing more: the warm interpreter is there, or will not come."""
        if self._zygotes is not None:
            await self._zygotes.settled()

    async def start(self, specs: Sequence[WorkerSpec]) -> None:
        """Start all of `specs` or none (StartFailed). Call `stop` first where there were others before.

        Where the caller is cancelled, what was started meanwhile is found and ended by the next `stop`.
        """
        if unkillable := self.unkillable:
            raise StartFailed(f"process {unkillable[0]} of the previous workers still does not exit")
        if self.alive or self._ending is not None:
            raise RuntimeError("workers of an earlier round still run: stop them first")
        self.reaper.start()
        with contextlib.suppress(ValueError, RuntimeError):  # not in the thread that hears of signals
            asyncio.get_running_loop().add_signal_handler(signal.SIGWINCH, self._resize)
        self._forget()
        self._stopping = False
        self._seen = self._version
        self._count_kills()
        await self._begin(specs)

    def let_go(self) -> None:
        """Has those begin that are held, as their `begin` says."""
        if self._zygotes is not None:
            self._zygotes.let_go()

    def keep(self, kept: Mapping[int, WorkerSpec]) -> None:
        """The next round, in which these keep their process. Call `fill` then: it ends the others.

        Args:
            kept: what each of them is from now on, by pid.
        """
        for worker in self._current:
            if worker.pid not in kept:
                worker.counts = False
                self._gone.append(worker)
        self._current = [worker for worker in self._current if worker.pid in kept]
        self._exits = []
        for worker in self._current:
            spec = worker.spec = kept[worker.pid]
            worker.out.follow(self._output.open(spec.round, spec.rank, spec.local_rank, "stdout"))
            worker.err.follow(self._output.open(spec.round, spec.rank, spec.local_rank, "stderr"))
        self._version += 1

    async def fill(self, specs: Sequence[WorkerSpec], grace: float = 0.0) -> None:
        """Ends those that were not kept, and starts all of `specs` or none beside the others (StartFailed).

        An orphan of an ended worker that has left its session lives on until all are stopped. `grace`: see `stop`.
        """
        await self._clear(self._gone, grace)
        self._gone = []
        self._count_kills()
        if specs:
            await self._begin(specs)

    def signal(self, signum: int) -> None:
        """Send `signum` to every living worker itself, not to its children."""
        for worker in self._current:
            _send(worker, signum)

    def pause(self) -> None:
        """Stop the workers' process groups where they are (Ctrl-Z)."""
        self._output.pause()
        self._signal_groups(signal.SIGSTOP)

    def resume(self) -> None:
        """Let paused workers continue."""
        self._output.resume()
        self._signal_groups(signal.SIGCONT)

    async def stop(self, *, first: int = _TERM, grace: float = 0.0) -> tuple[Exit, ...]:
        """End the current workers and all that they started; returns all exits of the set.

        Args:
            first: the signal that each worker gets, where there is a grace. What it started gets it when the worker
                itself has ended: before that, the worker may still need it (the processes of a DataLoader).
            grace: seconds that all of them have to end by themselves; 0: SIGKILL at once.

        Ends within `grace` and KILL_SECONDS more; processes that are then still there are named in a line, and are in
        `unkillable`. A second call while one runs signals again and can only shorten the grace. Where the caller is
        cancelled, the stop continues; `close` waits for it.
        """
        if not self._stopping:
            # Those that had ended by themselves before this moment were not stopped.
            for worker in self._current:
                self._look(worker)
            self._stopping = True
            self._deadline = float("inf")
        self._deadline = min(self._deadline, time.monotonic() + grace)
        if grace > 0:
            self._first = first
            self._told.clear()
            self.signal(first)
        self._hurry.set()
        if self._ending is None:
            self._ending = asyncio.create_task(self._end(), name="stop workers")
        await asyncio.shield(self._ending)
        return self.exits

    async def close(self, *, keep_detached: bool = False, sessions: frozenset[int] = frozenset()) -> None:
        """Kill what still runs and give up all handles.

        With `keep_detached`, what has left the session of its worker lives on, and what it prints goes on to where its
        worker's output went. What is in one of `sessions`, or was started by a service, does not.
        """
        warm = self._zygotes.sessions if self._zygotes is not None else frozenset[int]()
        if self._zygotes is not None:
            await self._zygotes.close()
            self._zygotes = None  # what is left of them is ended with the workers
        if keep_detached:
            self._ends_only = warm | sessions | {worker.pid for worker in (*self._current, *self._gone)}
        await self.stop()
        self._forget()
        if self._oom_look is not None:
            self._oom_look.cancel()
        self.reaper.close()

    # Starting.

    def _count_kills(self) -> None:
        """From here on, of the workers that are about to run."""
        self._oom = OomKills()
        if self._oom_look is not None:
            self._oom_look.cancel()
        self._oom_look = asyncio.get_running_loop().call_later(OOM_SECONDS, self._count_kills_again)

    def _count_kills_again(self) -> None:
        self._oom.look()
        self._oom_look = asyncio.get_running_loop().call_later(OOM_SECONDS, self._count_kills_again)

    async def _begin(self, specs: Sequence[WorkerSpec]) -> None:
        """Starts all of `specs` beside those that run, or none of them (StartFailed)."""
        if self._zygotes is not None and await self._fork(self._zygotes, specs):
            return
        started: list[_Worker] = []
        for spec in specs:
            try:
                started.append(self._start(spec))
            except OSError as error:
                for worker in started:
                    worker.counts = False
                    _send(worker, signal.SIGKILL)
                raise StartFailed(
                    f"cannot start the worker of rank {spec.rank} (local {spec.local_rank}): {error}{advice(error)}"
                ) from error
        self._current += started

    def _start(self, spec: WorkerSpec) -> _Worker:
        with contextlib.ExitStack() as undo:
            (out, out_end), (err, err_end) = self._pipes(spec, undo)
            try:
                # stdin is inherited, as torchrun does: a debugger in a single worker works.
                popen = subprocess.Popen(
                    shimmed(spec.argv, self._limits),
                    env=tagged(spec.env, self._tag),
                    stdout=out_end,
                    stderr=err_end,
                    start_new_session=True,
                )
            finally:
                os.close(out_end)
                os.close(err_end)
            try:
                worker = _Worker(spec, popen.pid, out, err, popen)
            except OSError:
                popen.kill()
                popen.wait()
                raise
            undo.pop_all()
        self._attend(worker)
        return worker

    async def _fork(self, zygotes: Zygotes, specs: Sequence[WorkerSpec]) -> bool:
        """Fork all of `specs` from the warm interpreter; False where they have to be started afresh."""
        environments = [tagged(spec.env, self._tag) for spec in specs]
        if not zygotes.fits({spec.argv for spec in specs}, environments):
            return False
        with contextlib.ExitStack() as undo:
            pipes: list[tuple[Printed, Printed]] = []
            ends: list[tuple[int, int]] = []
            try:
                for spec in specs:
                    (out, out_end), (err, err_end) = self._pipes(spec, undo)
                    pipes.append((out, err))
                    ends.append((out_end, err_end))
                pids = await zygotes.fork(ends, environments, [spec.begin for spec in specs])
            except (NotForked, OSError):
                return False
            finally:
                for pair in ends:
                    for end in pair:
                        os.close(end)
            try:
                workers = [
                    _Worker(spec, pid, out, err) for spec, pid, (out, err) in zip(specs, pids, pipes, strict=True)
                ]
            except OSError as error:
                raise StartFailed(f"cannot watch the workers: {error}") from error  # the next stop finds them
            undo.pop_all()
        self._current += workers
        for worker in workers:
            self._attend(worker)
        return True

    def _attend(self, worker: _Worker) -> None:
        """Tell the guardian of a new worker, and listen to it."""
        self._guardian.watch(worker.pid)
        if self._since is None:
            with contextlib.suppress(OSError):
                found = process(worker.pid)
                self._since = found.started if found else None
        asyncio.get_running_loop().add_reader(worker.pidfd, self._look, worker)
        if not self._backpressure.stopped:
            for _, pipe in worker.pipes:
                pipe.listen(self._backpressure.look)

    def _pipes(self, spec: WorkerSpec, undo: contextlib.ExitStack) -> tuple[tuple[Printed, int], tuple[Printed, int]]:
        """Of stdout and stderr: our reading end and the worker's writing end, which the caller closes."""
        out = open_stream(self._output, spec.round, spec.rank, spec.local_rank, "stdout", undo)
        try:
            return out, open_stream(self._output, spec.round, spec.rank, spec.local_rank, "stderr", undo)
        except OSError:
            os.close(out[1])
            raise

    def _resize(self) -> None:
        for worker in self._current:
            for name, pipe in worker.pipes:
                if size := self._output.terminal_size(worker.spec.local_rank, name):
                    pipe.resize(size)

    def _stop_reading(self) -> None:
        for pipe in self._open_pipes():
            pipe.rest()

    def _read_again(self) -> None:
        for pipe in self._open_pipes():
            pipe.listen(self._backpressure.look)

    def _open_pipes(self) -> list[Printed]:
        return [pipe for worker in self._current for _, pipe in worker.pipes if not pipe.closed]

    # Ends.

    def _look(self, worker: _Worker) -> None:
        """Take note of the end of `worker`, if it has ended."""
        if worker.ended.is_set():
            return
        pidfd = worker.pidfd
        ending = worker.collect()
        if ending is None and (ending := self._held_by_tracer(worker)) is None:
            return
        asyncio.get_running_loop().remove_reader(pidfd)
        worker.ended.set()
        if self._stopping:
            self._hurry.set()  # what it leaves behind is to be told now
        for pipe in (worker.out, worker.err):
            pipe.drain()
            pipe.lines.end_line()
        if not worker.counts:
            worker.end_output()
            self._guardian.forget(worker.pid)
            return
        self._exits.append(self._exit(worker, ending))
        self._version += 1
        self._changed.set()

    def _held_by_tracer(self, worker: _Worker) -> int | None:
        """How a worker has ended that its parent cannot collect, because a tracer keeps it; None: not known, or not so.

        Its handle would wake the loop again and again: it is looked at now and then instead.
        """
        try:
            found = process(worker.pid)
        except OSError:
            return None  # no descriptor is left to look: the handle wakes the loop again
        if found is None or found.alive:
            return None
        if (ending := worker.collect()) is not None:
            return ending  # it has just ended, and nobody keeps it
        code = os.waitstatus_to_exitcode(found.status)
        if code != 0 or self._stopping:
            self.reaper.adopt([worker.pid])
            return worker.settle(code)
        # 0 is also what a kernel says that does not tell.
        loop = asyncio.get_running_loop()
        if worker.again is None:
            loop.remove_reader(worker.pidfd)
            self._output.say(
                f"rank {worker.spec.rank} (pid {worker.pid}) has exited, and a tracer (a debugger, strace) holds its "
                "exit code: waiting until the tracer releases it"
            )
        else:
            worker.again.cancel()
        worker.again = loop.call_later(HELD_SECONDS, self._look, worker)
        return None

    def _exit(self, worker: _Worker, ending: int) -> Exit:
        spec = worker.spec
        code, signum = (ending, None) if ending >= 0 else (None, -ending)
        message = trace = ""
        stream: StreamName = "stderr"
        killed = 0
        if code != 0 and not self._stopping:
            try:
                if signum == signal.SIGKILL and self._oom.own:
                    killed = self._oom.name()
                stream, message, trace = self._explain(worker, signum, killed)
            except OSError as error:  # its end counts, whether or not it can be explained
                message = f"its exit status cannot be read: {error}"
        log = self._output.log_file(spec.round, spec.local_rank, stream)
        if log is None and code != 0 and not self._stopping:
            pipe = worker.out if stream == "stdout" else worker.err
            with contextlib.suppress(OSError):  # a full disk must not hide how the worker ended
                log = self._output.keep_tail(spec.round, spec.local_rank, stream, pipe.tail, pipe.cut)
        return Exit(
            round=spec.round,
            rank=spec.rank,
            local_rank=spec.local_rank,
            pid=worker.pid,
            code=code,
            signal=signum,
            message=message,
            traceback=trace,
            log=str(log) if log else "",
            seconds=time.monotonic() - worker.born,
            stopped=self._stopping,
            oom_kills=killed,
        )

    def _explain(self, worker: _Worker, signum: int | None, killed: int) -> tuple[StreamName, str, str]:
        """Which of its streams tells most of its end, the message, and the traceback."""
        stream: StreamName = "stderr"
        file = worker.spec.error_file
        told = self._output.disk.read_error_file(file, worker.spec.rank, self._output.say) if file else None
        message, trace = read_failure(worker.err.tail, told)
        if worker.condemned:
            return stream, worker.condemned, trace
        rise = self._oom.rise
        if signum == signal.SIGKILL:
            if killed:
                return stream, out_of_memory(killed), trace
            elsewhere = 0 if rise and self._oom.own else self._oom.elsewhere
            return stream, (f"it may have been {out_of_memory(elsewhere)}" if elsewhere else ""), trace
        if not message and signum is None:
            stream, line = last_words(worker.err.tail, worker.out.tail)
            if stream == "stdout":
                message, trace = read_failure(worker.out.tail, None)
            ours = line.removeprefix("[elastic-run] ")
            message = message or (ours if ours != line else (f"last line on {stream}: {line}" if line else ""))
        if not message and signum == signal.SIGABRT and (line := last_line(worker.err.tail)):
            message = f"last line on stderr: {line}"
        if rise > 0:
            # The killer may have chosen a child, and the worker tells only that it lost one.
            message = f"{message}; one of its processes may have been {out_of_memory(rise)}".removeprefix("; ")
        return stream, message, trace

    # Stopping.

    async def _end(self) -> None:
        try:
            await self._await_groups()
            await self._kill_rest()
            if self._ends_only is not None:
                self._leave_detached()
            for worker in self._current:
                worker.end_output()
                if not worker.given_up:
                    self._guardian.forget(worker.pid)
            self.reaper.reap()
        finally:
            self._ending = None

    async def _await_groups(self) -> None:
        """Until the grace is over: wait for the workers and for what they have in their process groups.

        The others of a group get the first signal when its worker has ended, as the script of a shell that did not
        pass it on.
        """
        while (rest := self._deadline - time.monotonic()) > 0:
            self._hurry.clear()
            groups = {worker.pid for worker in self._current}
            orphaned = {worker.pid for worker in self._current if worker.ended.is_set()}
            left = self._left()
            if left is not None:
                left = [found for found in left if found.group in groups]
                self._tell([found for found in left if found.group in orphaned and found.pid not in self._told])
            if not left and (left is not None or orphaned == groups):
                return
            await ended(left or (), rest, self._hurry)

    def _tell(self, rest: Sequence[Process]) -> None:
        """The first signal of this stop goes to these, once."""
        with contextlib.suppress(OSError):  # who is missed is told at the next look, or killed
            for found in rest:
                if not is_tracker(words_of(found.pid)):
                    send(found, self._first)
                self._told.add(found.pid)

    async def _clear(self, gone: Sequence[_Worker], grace: float) -> None:
        """Ends these workers and what is in their sessions, while others live."""
        if not gone:
            return
        if grace > 0:
            for worker in gone:
                _send(worker, signal.SIGTERM)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(grace):
                    for worker in gone:
                        await worker.ended.wait()
        left = await self._kill_until_gone(gone, {worker.pid for worker in gone})
        for worker in gone:
            self._look(worker)
            worker.end_output()
            if worker.ended.is_set():
                self._guardian.forget(worker.pid)
        if left is not None:
            self._give_up(left)

    async def _kill_rest(self) -> None:
        until = time.monotonic() + self._kill_seconds
        left = await self._kill_until_gone((*self._current, *self._gone))
        if left is None:
            self._output.say(
                "this agent has no free file descriptors and did not look for processes that its workers left behind; "
                "the guardian does it when this agent ends"
            )
        self._give_up(left or ())
        for worker in self._current:
            self._look(worker)
        # The handle of a process that is gone may take some ms longer to say so.
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(max(until - time.monotonic(), 0.0)):
                for worker in self._current:
                    if not worker.given_up:
                        await worker.ended.wait()
        for worker in (each for each in self._current if not each.given_up):
            self._look(worker)
        if left is None:
            self._give_up((), [worker.pid for worker in self._current if not worker.ended.is_set()])

    async def _kill_until_gone(
        self, workers: Sequence[_Worker], sessions: Collection[int] | None = None
    ) -> list[Process] | None:
        """SIGKILL to these and to all that `_left(sessions)` finds, until nothing is left or the time is over; who is.

        Who was given up before gets the signal once more, and no time.
        """
        until, mercy = time.monotonic() + self._kill_seconds, Mercy()
        for worker in workers:
            _send(worker, signal.SIGKILL)
        while True:
            left = self._left(sessions)
            if left is None:
                self._signal_groups(signal.SIGKILL)
            waited = [found for found in left or () if not self._is_unkillable(found)]
            condemned = kill(mercy, left or (), waited)
            if left is not None and not waited:
                return left
            if (rest := until - time.monotonic()) <= 0:
                return left and [found for found in left if found in condemned]
            await ended(condemned or waited, rest if condemned else min(rest, TRACKER_SECONDS))

    def _give_up(self, left: Sequence[Process], unseen: Sequence[int] = ()) -> None:
        """SIGKILL has not ended those that are `left`: they are said, and nothing waits for them again."""
        for found in left:
            if not self._is_unkillable(found):
                self._output.say(
                    f"process {found.pid} does not die: SIGKILL was sent {self._kill_seconds:g} s ago "
                    f"and its state is {describe_state(found)}"
                )
        unkillable = {found.pid: found.started for found in left} | dict.fromkeys(unseen, _UNSEEN)
        self._unkillable |= unkillable
        for worker in (*self._current, *self._gone):
            if worker.pid in unkillable and not worker.ended.is_set() and not worker.given_up:
                worker.given_up = True
                self._version += 1
                self._changed.set()

    def _left(self, of: Collection[int] | None = None) -> list[Process] | None:
        """What of the current workers still runs; None where no descriptor is left to look.

        With `of`, only what is in those sessions or descends from them.
        """
        own = {worker.pid for worker in (*self._current, *self._gone)} if of is None else set(of)
        try:
            # The kernel's list of children may skip some while others end: believed when it is empty twice.
            left = self._belonging(own, all_of_ours=of is None) or self._belonging(own, all_of_ours=of is None)
            self.reaper.adopt(found.pid for found in left if found.pid not in own)
            left = [found for found in left if not is_manager(words_of(found.pid))]
        except OSError:
            return None
        ends_only = self._ends_only if of is None else None
        if ends_only is None:
            return left
        of_services = {found.pid for found in belonging(left, (), service_tag(self._tag))}
        return [found for found in left if found.session in ends_only or found.pid in of_services]

    def _leave_detached(self) -> None:
        """Names what lives on, and lets somebody else read what it prints."""
        try:
            sessions = {worker.pid for worker in (*self._current, *self._gone)}
            detached = [each for each in self._belonging(sessions) if not is_manager(words_of(each.pid))]
        except OSError:
            detached = []
        if detached:
            names = ", ".join(f"pid {found.pid} ({command_of(found.pid)})" for found in detached[:NAMED])
            more = f" and {len(detached) - NAMED} more" if len(detached) > NAMED else ""
            self._output.say(
                f"processes that the script started in their own session keep running: {names}{more} "
                "(--detached=kill ends them with the job)"
            )
        ways = {
            pipe.descriptor: self._output.target(worker.spec.round, worker.spec.local_rank, stream)
            for worker in self._current
            for stream, pipe in worker.pipes
            if not pipe.ended
        }
        try:
            for descriptor in ways:
                os.set_inheritable(descriptor, True)
            if ways:
                argv = [sys.executable, "-I", "-S", str(DRAIN), *(f"{pipe}:{to}" for pipe, to in ways.items())]
                os.posix_spawn(sys.executable, argv, os.environ, setsid=True)
        except OSError as error:
            self._output.say(f"the output of these processes is no longer read: {error}")

    def _belonging(self, sessions: Collection[int], *, all_of_ours: bool = True) -> list[Process]:
        """What runs in these sessions or descends from them; with `all_of_ours` also tagged processes and daemons.

        All is decided by one look at the processes: a daemon that is given to this one between two would be in neither.
        """
        stay = {*self.apart, *(self._zygotes.sessions if self._zygotes is not None else ())}  # interpreters, services
        below = [found for found in descendants(os.getpid()) if found.session not in stay]
        if not all_of_ours:
            return belonging(below, sessions, None)
        return belonging(below, {*sessions, *self._daemons(below)}, self._tag)

    def _daemons(self, below: Iterable[Process]) -> set[int]:
        """The sessions of daemons that workers have started with another environment (no tag is in it).

        Such a process was given to this one, a subreaper, when its own parent ended. What this process starts itself is
        in its session, or is marked. As a container's first process it is given what others have started there, too.
        """
        since, me, own = self._since, os.getpid(), os.getsid(0)
        if since is None or since < 0 or me == FIRST_PROCESS:
            return set()
        return {
            found.session
            for found in below
            if found.parent == me
            and found.session != own
            and found.started >= since
            and not started_with(found.pid, KEPT_VARIABLE)
        }

    def _signal_groups(self, signum: int) -> None:
        for worker in self._current:
            # A group whose leader was collected is left to the search: its number may have gone to others.
            if not worker.ended.is_set():
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(worker.pid, signum)

    def _forget(self) -> None:
        """Give up the ended set."""
        for worker in self._current:
            worker.end_output()
            # An unkillable one is still waited for, so that it does not stay as a zombie.
            worker.counts = False
        self._current, self._gone = [], []
        self._exits = []


def _send(worker: _Worker, signum: int) -> None:
    if not worker.ended.is_set():
        with contextlib.suppress(ProcessLookupError):
            signal.pidfd_send_signal(worker.pidfd, signum)
