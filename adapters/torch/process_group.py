"""torch's process groups for a worker that keeps its process: formed, broken and formed again, round after round.

A process group is broken from outside: the agent shuts its sockets down (`rounds.py`), and whoever waits in a
collective is free at once. So nothing here waits for torch's own timeouts but for the moment in which gloo connects.
"""

import atexit
import contextlib
import ctypes
import datetime
import inspect
import itertools
import os
import socket
import stat
import sys
import threading
import time
import weakref
from collections.abc import Callable, Generator
from typing import Any

from torch import distributed
from torch.distributed import distributed_c10d

from ..client.context import Context
from ..client.rounds import Rounds
from .errors import ProcessGroupExists

dist: Any = distributed  # half of it has no types in torch, and half of the rest is not exported
c10d: Any = distributed_c10d

CONNECT_SECONDS = 5.0
"""For the groups to connect, once all ranks are known to be there."""

FORM_SECONDS = 600.0
"""For all ranks to come to a new process group; a rank that is lost meanwhile ends the wait at once."""

LINGER_SECONDS = 1.0
"""A group that is no longer used is kept for so long: most of what it was doing has come to its end by then."""

END_SECONDS = 0.2
"""At the end of the process, for groups that are being ended just then."""

_PAUSE = 0.001

_LOOK_SECONDS = (0.05, 2.0)
"""For rank 0's machine to answer: at first, and after some attempts to reach one that is far away."""


class Superseded(Exception):
    """While the process group was formed, its round was over."""


class ElasticProcessGroup:
    """The process groups of one worker.

    Args:
        members: who gives it rank assignments.
        backend: for torch; None: gloo.
        timeout: of collectives; None: torch's.
    """

    def __init__(self, members: Rounds, backend: str | None, timeout: datetime.timedelta | None) -> None:
        self._members = members
        self._backend = backend
        self._timeout = timeout
        self._old: list[tuple[float, list[Any]]] = []  # since when they are not used, and the groups
        self._store: Any = None
        self._control: Any = None
        _instances.add(self)

    @property
    def control(self) -> Any:  # torch's group
        """A group for tensors in memory; None in a world of one."""
        return self._control

    def form(self, here: Context) -> None:
        """The groups of this round.

        Raises Superseded, ProcessGroupExists, and whatever torch does where a peer is lost meanwhile.
        """
        if dist.is_initialized() and not self._members.alone:
            raise ProcessGroupExists(
                "the script has called init_process_group() itself: remove that call: run() and attempts() form the "
                "process group. A worker that is started later would wait there for the others, and they here for it"
            )
        if dist.is_initialized():  # the script's own, from before it asked for process groups that can be formed again
            self._backend = self._backend or dist.get_backend_config()
            self.drop()
        backend = self._backend or "gloo"
        with self._captured():
            self._store = self._meet(here)
        with self._captured():
            dist.init_process_group(
                backend,
                store=dist.PrefixStore("group", self._store),
                rank=here.rank,
                world_size=here.world_size,
                timeout=datetime.timedelta(seconds=CONNECT_SECONDS),
            )
            kinds = dist.get_backend_config()
            has_memory = "cpu:" in kinds or kinds == "gloo"
            self._control = dist.group.WORLD if has_memory else dist.new_group(backend="gloo")
        c10d._set_pg_timeout(self._timeout or c10d.default_pg_timeout, dist.group.WORLD)
        self._members.formed()

    @contextlib.contextmanager
    def watched(self) -> Generator[None]:
        """While it lasts, groups that the script makes are handed to the agent as well."""
        own = c10d.new_group

        def new_group(*args: Any, **kwargs: Any) -> Any:
            with self._captured():
                return own(*args, **kwargs)

        modules = [module for module in (dist, c10d) if getattr(module, "new_group", None) is own]
        for module in modules:
            module.new_group = new_group
        try:
            yield
        finally:
            for module in modules:
                module.new_group = own

    def drop(self, *, broken: bool = False) -> None:
        """Leaves the groups. They are ended later, where their threads are in nobody's way."""
        self.tidy()
        groups: list[Any] = list(c10d._world.pg_map)
        self._old.append((time.monotonic(), [*groups, self._store]))
        if broken:
            for group in groups:
                with contextlib.suppress(Exception):  # NCCL's only; gloo's does nothing
                    group.abort()
        self._store = self._control = None
        if dist.is_initialized():
            # As torch has it: a worker that was forked waits first, which is not needed where the groups live on.
            inspect.unwrap(dist.destroy_process_group)()
        # torch counts its default groups, those too that failed while they connected, and meets under that number: a
        # worker that has just started counts from 0.
        c10d._world.group_count = 0

    def tidy(self) -> None:
        """Ends groups that have not been used for a while, and that nobody else has."""
        now = time.monotonic()
        for old in [old for old in self._old if now - old[0] >= LINGER_SECONDS and _are_unused(old[1])]:
            self._old.remove(old)
            _end(old[1])

    def _meet(self, here: Context) -> Any:
        """The store at which the ranks meet, when all of them are there. Raises Superseded, TimeoutError."""
        if here.world_size == 1:
            return dist.HashStore()
        host, port = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])
        # torchrun's agent keeps the store, with all that the workers before a restart have left there.
        kept = os.environ.get("TORCHELASTIC_USE_AGENT_STORE") == "True"
        serves = here.rank == 0 and not kept
        until = time.monotonic() + FORM_SECONDS
        if not serves:
            patience = itertools.chain(itertools.repeat(_LOOK_SECONDS[0], 20), itertools.repeat(_LOOK_SECONDS[1]))
            self._await(lambda: _listens(host, port, next(patience)), until, f"rank 0 does not listen at {host}:{port}")
        store = dist.TCPStore(
            host,
            port,
            here.world_size,
            is_master=serves,
            timeout=datetime.timedelta(seconds=CONNECT_SECONDS),
            wait_for_workers=False,
        )
        if kept:
            store = dist.PrefixStore(f"elastic-run/attempt {os.environ.get('TORCHELASTIC_RESTART_COUNT', 0)}", store)
        if store.add("here", 1) == here.world_size:
            store.set("all", "here")
        self._await(lambda: store.check(["all"]), until, "not all ranks joined the process group")
        return store

    def _await(self, done: Callable[[], bool], until: float, what: str) -> None:
        while not done():
            if self._members.over:
                raise Superseded
            if time.monotonic() > until:
                raise TimeoutError(f"{what} within {FORM_SECONDS:g} s")
            time.sleep(_PAUSE)

    @contextlib.contextmanager
    def _captured(self) -> Generator[None]:
        """Hands the sockets that come into being meanwhile to the agent."""
        if self._members.alone:
            yield
            return
        before = _sockets()
        try:
            yield
        finally:
            self._members.register_sockets(sorted(descriptor for descriptor, _ in _sockets() - before))


_instances: weakref.WeakSet[ElasticProcessGroup] = weakref.WeakSet()
_enders: list[threading.Thread] = []


def _are_unused(groups: list[Any]) -> bool:
    """Whether nobody has any of these but this list. DistributedDataParallel has, until it is gone itself."""
    return all(sys.getrefcount(groups[number]) <= 2 for number in range(len(groups)))


def _end(groups: list[Any]) -> None:
    """Ends them in a thread of its own: torch waits for their threads then, and one may still wait for a lost peer."""
    _enders[:] = [each for each in _enders if each.is_alive()]
    ender = threading.Thread(target=groups.clear, name="ends process groups", daemon=True)
    _enders.append(ender)
    ender.start()


@atexit.register
def _at_the_end() -> None:
    """Of the process. Groups that are left by then live as long as it does: nobody waits for their threads.

    A thread that comes back from torch when Python is gone would abort the process.
    """
    for group in [group for instance in _instances for _, groups in instance._old for group in groups]:  # pyright: ignore[reportPrivateUsage]
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(group))
    until = time.monotonic() + END_SECONDS
    for each in _enders:
        each.join(max(0.0, until - time.monotonic()))


def _sockets() -> set[tuple[int, int]]:
    """Of each that this process has open: the descriptor, and which socket it is."""
    found: set[tuple[int, int]] = set()
    for name in os.listdir("/proc/self/fd"):  # noqa: PTH208 - numbers, not paths
        with contextlib.suppress(OSError):  # the one of this very folder, and what another thread has closed
            status = os.fstat(int(name))
            if stat.S_ISSOCK(status.st_mode):
                found.add((int(name), status.st_ino))
    return found


def _listens(host: str, port: int, timeout: float) -> bool:
    """Whether somebody does. torch's own client, where it comes too early, tries again only after tenths of seconds."""
    try:
        socket.create_connection((host, port), timeout=timeout).close()
    except OSError:
        return False
    return True
