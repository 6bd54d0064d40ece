"""A simulated operating system: processes on machines, in one thread, on a virtual clock.

`Kernel` is an asyncio event loop, so that the product's own coroutines run on it unchanged. Whose a callback is stands
in its context: a process can be killed, frozen and signalled, and what has no process is the world (the network, the
faults, the checks), which is never stopped. Time passes only where nobody has anything to do at the present moment.
One seed gives one order of events: nothing here asks the real clock, the address of an object or the garbage collector.
"""

import asyncio
import contextlib
import contextvars
import gc
import heapq
import random
import signal
import sys
import traceback
import weakref
from asyncio import events
from collections import Counter, deque
from collections.abc import AsyncGenerator, Callable, Coroutine, Generator
from types import CodeType, FrameType, TracebackType
from typing import Any, Literal, Self

from .network import Accepted, Listener, Network, Server, Stack, Transport

Why = Literal["until", "stop", "idle"]
"""Why `Kernel.run` returned: the time was reached, `stop` said so, or nothing was left to do."""

_process: contextvars.ContextVar["Process"] = contextvars.ContextVar("process")

_IGNORED = frozenset({signal.SIGCHLD, signal.SIGURG, signal.SIGWINCH})
_STOPPING = frozenset({signal.SIGSTOP, signal.SIGTSTP, signal.SIGTTIN, signal.SIGTTOU})

_UNWINDINGS = 40
"""How often a coroutine may wait once more while it is thrown away."""

_WITNESSES = 20_000
"""Callbacks that are counted by name once a run is too long."""


class Livelock(Exception):
    """A run did not come to an end."""


class Handle:
    """A callback that waits for its turn. Cancelled ones have no callback."""

    __slots__ = ("args", "at", "callback", "context", "process")

    def __init__(
        self,
        callback: Callable[..., object] | None,
        args: tuple[Any, ...],
        context: contextvars.Context,
        process: "Process | None",
        at: float,
    ) -> None:
        self.callback = callback
        self.args = args
        self.context = context
        self.process = process
        self.at = at

    def cancel(self) -> None:
        """It will not be called."""
        self.callback = None
        self.args = ()

    def cancelled(self) -> bool:
        """Whether it was cancelled."""
        return self.callback is None

    def when(self) -> float:
        """When it is due, on the clock of the process that it belongs to."""
        return self.at if self.process is None else self.at + self.process.offset


class Tasks:
    """The unfinished tasks of one owner, in the order of their creation, without keeping any of them alive."""

    __slots__ = ("_bound", "_references")

    def __init__(self) -> None:
        self._references: list[weakref.ref[asyncio.Task[Any]]] = []
        self._bound = 64

    def add(self, task: asyncio.Task[Any]) -> None:
        """One more."""
        self._references.append(weakref.ref(task))
        if len(self._references) > self._bound:
            self._references = [weakref.ref(task) for task in self]
            self._bound = max(64, 2 * len(self._references))

    def keep(self) -> None:
        """Forgets none from now on, so that they can be looked through while more are added."""
        self._bound = sys.maxsize

    def __iter__(self) -> "Generator[asyncio.Task[Any], None, None]":
        for reference in self._references:  # also those that are added meanwhile
            task = reference()
            if task is not None and not task.done():
                yield task


class Machine:
    """One computer.

    Attributes:
        on: whether it has power.
        offset: seconds by which its monotonic clock is ahead of the world's; another one after each start.
        processes: all that ever ran here, in order.
    """

    def __init__(self, name: str, offset: float) -> None:
        self.name = name
        self.on = True
        self.offset = offset
        self.processes: list[Process] = []


class Process:
    """One process; made by `Kernel.spawn`.

    Attributes:
        main: its main task.
        context: where its callbacks run; `context.run(f)` does something in the process's name.
        alive: it neither has ended nor was killed.
        frozen: SIGSTOP came, and no SIGCONT since.
        end: how it ended: "" (not yet), "returned", "raised", "powered off" or a signal's name.
        leftover: names of the tasks that were unfinished when `main` returned.
    """

    def __init__(self, kernel: "Kernel", machine: Machine, name: str) -> None:
        self.name = name
        self.machine = machine.name
        self.offset = machine.offset
        self.context = contextvars.Context()
        self.context.run(_process.set, self)
        self.main: asyncio.Task[Any]
        self.alive = True
        self.frozen = False
        self.halted = False  # not alive, or frozen: asked for every callback
        self.end = ""
        self.leftover: tuple[str, ...] = ()
        self.busy_until = 0.0  # the world's time: what it does takes so long
        self.waiting: list[Handle] = []  # what could not be called because it is halted
        self.tasks = Tasks()
        self.transports: dict[Transport, None] = {}  # in the order of their creation
        self.listeners: dict[Listener, None] = {}
        self.handlers: dict[int, tuple[Callable[..., object], tuple[Any, ...], contextvars.Context]] = {}
        self._pending: dict[int, None] = {}  # signals that wait for SIGCONT, in order
        self._kernel = kernel

    def __repr__(self) -> str:
        state = self.end or ("frozen" if self.frozen else "alive")
        return f"<process {self.name} on {self.machine}: {state}>"

    def kill(self) -> None:
        """SIGKILL: nothing of it ever runs again, no `finally` either; its machine closes what it had open."""
        self.die("SIGKILL")

    def die(self, end: str, *, silently: bool = False) -> None:
        """It is gone. Where that is `silently`, its machine has no time to close anything."""
        if not self.alive:
            return
        self.alive, self.halted, self.end = False, True, end
        self._kernel.stack.clean_up(self, silently=silently)

    def freeze(self) -> None:
        """SIGSTOP: its callbacks and timers wait; its machine still accepts connections for it."""
        if self.alive:
            self.frozen = self.halted = True

    def thaw(self) -> None:
        """SIGCONT: what has waited runs, in order; the clock has gone on meanwhile."""
        if not (self.alive and self.frozen):
            return
        self.frozen = self.halted = False
        waited, self.waiting = self.waiting, []
        self._kernel.resume(waited)
        signals, self._pending = self._pending, {}
        for number in signals:
            self.signal(number)

    def signal(self, number: int) -> None:
        """What `kill(2)` does: calls its handler (`loop.add_signal_handler`), or does what the system does without."""
        if not self.alive:
            return
        if number == signal.SIGKILL:
            self.kill()
        elif number == signal.SIGSTOP:
            self.freeze()
        elif number == signal.SIGCONT:
            self.thaw()
            self._handle(number)
        elif self.frozen:
            self._pending[number] = None
        elif not self._handle(number):
            if number in _STOPPING:
                self.freeze()
            elif number not in _IGNORED:
                self.die(signal.Signals(number).name)

    def _handle(self, number: int) -> bool:
        if number not in self.handlers:
            return False
        callback, args, context = self.handlers[number]
        self._kernel.call_soon(callback, *args, context=context)
        return True

    def returned(self, main: "asyncio.Task[Any]") -> None:
        """The main task is done, and the process ends with it."""
        if not self.alive:
            return
        self.leftover = tuple(task.get_name() for task in self.tasks)
        error = None if main.cancelled() else main.exception()
        if error is not None:
            self._kernel.errors.append(f"{self.name}: its main task raised {_described(error)}")
        self.die("returned" if error is None and not main.cancelled() else "raised")


class Kernel(asyncio.BaseEventLoop):
    """The event loop of all machines; `with Kernel(network, random) as kernel: ...` closes it.

    `time` and `call_at` use the clock of whoever calls them: a process its machine's, the world its own. From its
    making until `close` the garbage collector is off, because it would end async generators at any moment.

    Args:
        network: how long messages take.
        random: decides the origins of the machines' clocks.

    Attributes:
        now: the world's time, seconds; begins at 0.
        cost: seconds that a process needs each time that it passes the busiest place of what it does at once, which is
            a function of the product or a call in one. So what is done for each of n entries takes n times that, and
            into how many functions it is cut is all the same. While it is busy, what else it has to do waits, as in a
            loop that stands still.
        world: an empty context, for what is done in nobody's name.
        errors: what reached the loop's exception handler, each with its process's name.
        handled: callbacks so far.
        machines: those that were used, by name.
    """

    def __init__(self, network: Network, random: random.Random) -> None:
        super().__init__()
        self.now = 0.0
        self.cost = 0.0
        self.network = network
        self.world = contextvars.Context()
        self.errors: list[str] = []
        self.handled = 0
        self.machines: dict[str, Machine] = {}
        self.stack = Stack(self, network)
        self._random = random
        self._ready: deque[Handle] = deque()
        self._timers: list[tuple[float, int, Handle]] = []
        self._timers_made = 0
        self._tasks = Tasks()
        self._unwinding = False
        self._running = False
        self._last: Process | None = None  # whose callback ran; what dies when that is let go of is its business
        self._collects = gc.isenabled()
        gc.disable()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None
    ) -> None:
        self.close()

    # -- machines and processes -----------------------------------------------------------------------------------

    def machine(self, name: str) -> Machine:
        """The machine of that name; it exists from the first time that somebody asks."""
        found = self.machines.get(name)
        if found is None:
            found = self.machines[name] = Machine(name, self._clock_origin())
        return found

    def _clock_origin(self) -> float:
        # Whole seconds, and more than a run ever lasts: so the difference of two times on that clock is exact.
        return float(self._random.randrange(1 << 17, 1 << 20))

    def spawn(self, machine: str, name: str, main: "Callable[[], Coroutine[Any, Any, Any]]") -> Process:
        """Starts a process; it ends when `main` returns. `main` itself is called at once, in the process's context."""
        where = self.machine(machine)
        if not where.on:
            raise ValueError(f"{machine} is off: no process can be started there")
        process = Process(self, where, name)
        where.processes.append(process)
        process.main = process.context.run(self._start, main)
        process.main.add_done_callback(process.returned, context=self.world)
        return process

    def _start(self, main: "Callable[[], Coroutine[Any, Any, Any]]") -> "asyncio.Task[Any]":
        return self.create_task(main(), name="main")

    @property
    def processes(self) -> list[Process]:
        """All processes that ever ran, by machine."""
        return [process for machine in self.machines.values() for process in machine.processes]

    def power_off(self, machine: str) -> None:
        """All processes there die at once, and nobody is told."""
        where = self.machine(machine)
        where.on = False
        self.network.power(machine, on=False)
        for process in where.processes:
            process.die("powered off", silently=True)

    def power_on(self, machine: str) -> None:
        """The machine boots, with another clock and without any process."""
        where = self.machine(machine)
        if not where.on:
            where.on = True
            where.offset = self._clock_origin()
            self.network.power(machine, on=True)

    def current(self) -> Process | None:
        """In whose name the caller runs; None is the world."""
        return _process.get(None)

    # -- running --------------------------------------------------------------------------------------------------

    def run(self, until: float | None = None, stop: Callable[[], bool] | None = None, *, limit: int = 2_000_000) -> Why:
        """Runs until the world's time `until`, until `stop` (asked after each batch), or until nothing is left to do.

        What a callback of the world raises ends the run and is raised here; what one of a process raises goes to
        `errors`. Raises Livelock after `limit` callbacks.
        """
        if self._running or events._get_running_loop() is not None:
            raise RuntimeError("a loop runs in this thread already")
        if stop is not None and stop():
            return "stop"
        hooks = sys.get_asyncgen_hooks()
        sys.set_asyncgen_hooks(firstiter=None, finalizer=self._end_generator)
        events._set_running_loop(self)
        self._running = True
        try:
            return self._run(until, stop, limit)
        finally:
            self._running = False
            events._set_running_loop(None)
            sys.set_asyncgen_hooks(*hooks)

    def _run(self, until: float | None, stop: Callable[[], bool] | None, limit: int) -> Why:
        ready, timers, pop = self._ready, self._timers, heapq.heappop
        last = self.handled + limit
        busiest: Counter[str] = Counter()
        while True:
            while timers:
                at, _, handle = timers[0]
                if handle.callback is not None:
                    if at > self.now:
                        if ready:
                            break
                        if until is not None and at > until:
                            self.now = max(self.now, until)
                            return "until"
                        self.now = at
                    ready.append(handle)
                pop(timers)
            if not ready:
                if until is not None:
                    self.now = max(self.now, until)
                return "idle"
            if self.handled > last:
                if self.handled > last + _WITNESSES:
                    raise self._blame(busiest, limit)
                busiest.update(_whose(handle) for handle in ready)
            batch = len(ready)
            self.handled += batch
            for _ in range(batch):
                handle = ready.popleft()
                callback = handle.callback
                if callback is None:
                    continue
                process = handle.process
                if process is not None and process.halted:
                    # Of the dead too: to let go of it could end its generators, and a dead process ends nothing.
                    process.waiting.append(handle)
                    continue
                if process is not None and process.busy_until > self.now:
                    self._timers_made += 1
                    heapq.heappush(timers, (process.busy_until, self._timers_made, handle))
                    continue
                self._last = process
                try:
                    if process is None or not self.cost:
                        handle.context.run(callback, *handle.args)
                    else:
                        with _counting() as calls:
                            handle.context.run(callback, *handle.args)
                        process.busy_until = self.now + self.cost * max(calls.values(), default=0)
                except KeyboardInterrupt:
                    raise
                except BaseException as error:  # the outermost edge of a process
                    if process is None:
                        raise
                    self._report(process, f"{_name(callback)} raised", error)
                    if isinstance(error, SystemExit):
                        process.die("raised")
            handle = callback = process = self._last = None
            if stop is not None and stop():
                return "stop"

    def _blame(self, busiest: Counter[str], limit: int) -> Livelock:
        names = ", ".join(f"{name} ({count})" for name, count in busiest.most_common(5))
        return Livelock(f"more than {limit} callbacks, now at {self.now:.6f} s; the busiest of the last: {names}")

    def resume(self, handles: list[Handle]) -> None:
        """These get their turn after those that wait for it now."""
        self._ready.extend(handles)

    # -- what asyncio asks of a loop ------------------------------------------------------------------------------

    def time(self) -> float:
        """The monotonic clock of the machine on which the caller runs, seconds."""
        process = _process.get(None)
        return self.now if process is None else self.now + process.offset

    def call_soon(
        self, callback: Callable[..., object], *args: Any, context: contextvars.Context | None = None
    ) -> Handle:
        """Calls it in the next batch."""
        if context is None:
            context = contextvars.copy_context()
        handle = Handle(callback, args, context, context.get(_process), self.now)
        self._ready.append(handle)
        return handle

    def call_soon_threadsafe(
        self, callback: Callable[..., object], *args: Any, context: contextvars.Context | None = None
    ) -> Handle:
        """The same: there is one thread."""
        return self.call_soon(callback, *args, context=context)

    def call_at(
        self, when: float, callback: Callable[..., object], *args: Any, context: contextvars.Context | None = None
    ) -> Handle:
        """Calls it at `when` on the caller's clock, also where `context` is another's."""
        process = _process.get(None)
        return self._at(when if process is None else when - process.offset, callback, args, context)

    def call_later(
        self, delay: float, callback: Callable[..., object], *args: Any, context: contextvars.Context | None = None
    ) -> Handle:
        """Calls it after `delay` seconds."""
        return self._at(self.now + delay, callback, args, context)

    def _at(
        self, at: float, callback: Callable[..., object], args: tuple[Any, ...], context: contextvars.Context | None
    ) -> Handle:
        if context is None:
            context = contextvars.copy_context()
        if at < self.now:
            at = self.now
        handle = Handle(callback, args, context, context.get(_process), at)
        self._timers_made += 1
        heapq.heappush(self._timers, (at, self._timers_made, handle))
        return handle

    def create_task(
        self,
        coro: "Coroutine[Any, Any, Any]",
        *,
        name: str | None = None,
        context: contextvars.Context | None = None,
        **_: Any,
    ) -> "asyncio.Task[Any]":
        """A task of whoever asks; without a name it has its coroutine's, not a number of this interpreter's."""
        process = _process.get(None) if context is None else context.get(_process)
        name = name or getattr(coro, "__qualname__", "coroutine")
        task: asyncio.Task[Any] = asyncio.Task(coro, loop=self, name=name, context=context)
        (self._tasks if process is None else process.tasks).add(task)
        return task

    def add_signal_handler(self, sig: int, callback: Callable[..., object], *args: Any) -> None:
        """For the process that calls it."""
        self._in_process().handlers[sig] = (callback, args, contextvars.copy_context())

    def remove_signal_handler(self, sig: int) -> bool:
        """Whether the calling process had one."""
        return self._in_process().handlers.pop(sig, None) is not None

    def add_reader(self, fd: Any, callback: Callable[..., object], *args: Any) -> None:  # Any: a simulated socket
        """For sockets of one machine's processes, and for those on which a process accepts by itself."""
        fd.listened_to(callback, args)

    def remove_reader(self, fd: Any) -> bool:  # Any: as above
        """Whether somebody listened."""
        return fd.ignored()

    def _in_process(self) -> Process:
        process = _process.get(None)
        if process is None:
            raise RuntimeError("only a process can do that, and the world is none")
        return process

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        """Keeps it in `errors`."""
        if self._unwinding:
            return
        message = str(context.get("message"))
        what = context.get("task") or context.get("future")
        if isinstance(what, asyncio.Task):
            message += f" ({what.get_name()})"
        self._report(_process.get(self._last), message, context.get("exception"))

    def _report(self, process: Process | None, message: str, error: BaseException | None) -> None:
        who = "the world" if process is None else process.name
        self.errors.append(f"{who}: {message}{'' if error is None else f': {_described(error)}'}")

    # -- TCP ------------------------------------------------------------------------------------------------------

    def listen(self, port: int = 0) -> Listener:
        """A listening socket of the calling process, as `create_server(sock=...)` takes it; 0 is any free port.

        Raises OSError where another one has that port.
        """
        return self.stack.listen(self._in_process(), port)

    async def create_server(  # type: ignore[override]  # asyncio's has a dozen options that mean nothing here
        self,
        protocol_factory: Callable[[], asyncio.Protocol],
        host: str | None = None,
        port: int | None = None,
        *,
        sock: Any = None,  # Any: asyncio passes it on as a socket
        **_: object,
    ) -> Server:
        """A server on the machine of the calling process."""
        listener: Listener = sock if sock is not None else self.listen(port or 0)
        return listener.serve(protocol_factory, contextvars.copy_context())

    async def connect_accepted_socket(  # type: ignore[override]  # as above
        self,
        protocol_factory: Callable[[], asyncio.Protocol],
        sock: Any,  # Any: a simulated socket
        **_: object,
    ) -> tuple[asyncio.Transport, asyncio.Protocol]:
        """What a listening process has accepted."""
        accepted: Accepted = sock
        protocol = protocol_factory()
        accepted.transport.attach(protocol)
        return accepted.transport, protocol

    async def create_connection(  # type: ignore[override]  # as above
        self,
        protocol_factory: Callable[[], asyncio.Protocol],
        host: str | None = None,
        port: int | None = None,
        **_: object,
    ) -> tuple[asyncio.Transport, asyncio.Protocol]:
        """A connection to the machine `host`. Raises ConnectionRefusedError, TimeoutError, OSError."""
        if host is None or port is None:
            raise ValueError("host and port are needed")
        transport = await self.stack.connect(self._in_process(), host, port)
        protocol = protocol_factory()
        transport.attach(protocol)
        return transport, protocol

    # -- the end --------------------------------------------------------------------------------------------------

    def close(self) -> None:
        """Throws everything away, without a word: whatever runs in `finally` blocks now does nothing any more."""
        if self.is_closed():
            return
        if self._running:
            raise RuntimeError("the kernel runs")
        self._unwinding = True
        # Found before the methods: what is scheduled from now on is forgotten.
        self.call_soon = self.call_soon_threadsafe = self.call_at = self.call_later = _forget  # type: ignore[method-assign]
        self.stack.close()
        outer = events._get_running_loop()
        events._set_running_loop(self)
        hooks = sys.get_asyncgen_hooks()
        sys.set_asyncgen_hooks(firstiter=None, finalizer=_leave)
        try:
            processes = self.processes
            for process in processes:
                process.context.run(_unwind, process.tasks)
            self.world.run(_unwind, self._tasks)
            for process in processes:
                process.waiting.clear()
                process.handlers.clear()
                process.transports.clear()
                process.listeners.clear()
            self.machines.clear()
            self._ready.clear()
            self._timers.clear()
            super().close()
            if self._collects:
                gc.enable()
        finally:
            events._set_running_loop(outer)
            sys.set_asyncgen_hooks(*hooks)

    def _end_generator(self, generator: "AsyncGenerator[Any, None]") -> None:
        if not self._unwinding:
            process = _process.get(self._last)
            context = None if process is None else process.context.copy()
            self.create_task(generator.aclose(), name="the end of a generator", context=context)  # type: ignore[arg-type]  # it is one


@contextlib.contextmanager
def _counting() -> Generator[Counter[tuple[CodeType, int]]]:
    """How often each function of the product was called, and each call in it made.

    Generated functions, as of dataclasses, count.
    """
    calls: Counter[tuple[CodeType, int]] = Counter()

    def see(frame: FrameType, event: str, _: object) -> None:
        code = frame.f_code
        if event in ("call", "c_call") and (code.co_filename == "<string>" or "/elastic_run/" in code.co_filename):
            calls[code, -1 if event == "call" else frame.f_lasti] += 1

    before = sys.getprofile()
    sys.setprofile(see)
    try:
        yield calls
    finally:
        sys.setprofile(before)


def _forget(*_: object, **__: object) -> Handle:
    return Handle(None, (), contextvars.Context(), None, 0.0)


def _leave(_: "AsyncGenerator[Any, None]") -> None:
    """Without this the interpreter would end the generator itself, and complain where it waits for something."""


def _unwind(tasks: Tasks) -> None:
    tasks.keep()
    for task in tasks:
        coroutine = task.get_coro()
        if coroutine is None:
            continue
        try:
            # Not `close`: where an inner coroutine then waits in a `finally`, the outer one sees a RuntimeError.
            for _ in range(_UNWINDINGS):
                coroutine.throw(asyncio.CancelledError())
        except BaseException:  # noqa: BLE001  nobody is left to hear it
            continue
        with contextlib.suppress(RuntimeError):
            coroutine.close()  # it waits for tasks that will never be done, such as a group's


def _whose(handle: Handle) -> str:
    name = "nothing: cancelled" if handle.callback is None else _name(handle.callback)
    return f"{handle.process.name if handle.process else 'the world'}: {name}"


def _name(callback: Callable[..., object]) -> str:
    owner = getattr(callback, "__self__", None)
    if isinstance(owner, asyncio.Task):
        return f"task {owner.get_name()}"
    return getattr(callback, "__qualname__", None) or repr(callback)


def _described(error: BaseException) -> str:
    frames = traceback.extract_tb(error.__traceback__)
    where = f" (line {frames[-1].lineno} of {frames[-1].filename.rpartition('/')[2]})" if frames else ""
    return f"{error!r}{where}"
