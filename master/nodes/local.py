"""This machine as a platform: each replica is a process of its own (`Platform`).

For trying out, and for tests: the job's master starts, replaces and stops real agents, without a cluster.
"""

import asyncio
import contextlib
import os
import signal
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from .platform import Observer, PlatformRefused
from .replica import End, Exited, Launch, Replica

GRACE = 30.0
"""Seconds between SIGTERM and SIGKILL."""


@dataclass(slots=True)
class _Running:
    replica: Replica
    process: asyncio.subprocess.Process
    task: "asyncio.Task[None]"


class LocalPlatform:
    """Starts agents on this machine, in sessions of their own.

    Args:
        job: its id, which is part of the replicas' names.
        command: what runs a node, by its role and its name.
        now: the clock of `Replica.since`.
        environ: of the agents.
    """

    def __init__(
        self,
        job: str,
        command: Callable[[str, str], Sequence[str]],
        now: Callable[[], float],
        environ: Mapping[str, str],
    ) -> None:
        self._job = job
        self._command = command
        self._now = now
        self._environ = environ
        self._all: dict[str, _Running] = {}
        self._changed = asyncio.Event()

    async def follow(self, observe: Observer) -> None:
        """See `Platform`."""
        while True:
            self._changed.clear()
            observe([each.replica for each in self._all.values()])
            await self._changed.wait()

    async def start(self, launch: Launch) -> None:
        """See `Platform`. Raises PlatformRefused."""
        name = "-".join(filter(None, (self._job, launch.role, str(launch.index), str(launch.attempt))))
        if name in self._all:
            return
        try:
            process = await asyncio.create_subprocess_exec(
                *self._command(launch.role, name),
                stdin=asyncio.subprocess.DEVNULL,
                env=self._environ,
                start_new_session=True,
            )
        except OSError as error:
            raise PlatformRefused(f"cannot start {name}: {error}") from error
        replica = Replica(
            name,
            launch.role,
            launch.index,
            launch.attempt,
            launch.counted,
            "running",
            self._now(),
            raised=launch.raised,
        )
        task = asyncio.create_task(self._reap(name, process), name=f"reap {name}")
        self._all[name] = _Running(replica, process, task)
        self._changed.set()

    async def stop(self, name: str) -> None:
        """See `Platform`."""
        found = self._all.get(name)
        if found is None:
            return
        if found.process.returncode is not None:
            del self._all[name]
            self._changed.set()
        elif not found.replica.stopping:
            found.replica = replace(found.replica, stopping=True)
            found.process.terminate()
            asyncio.get_running_loop().call_later(GRACE, self._kill, found.process)
            self._changed.set()

    async def close(self, grace: float = GRACE) -> None:
        """Ends all of them: by SIGTERM, and by SIGKILL after so many seconds."""
        left = [each for each in self._all.values() if each.process.returncode is None]
        for each in left:
            each.process.terminate()
        if left:
            await asyncio.wait([each.task for each in left], timeout=grace)
        for each in left:
            self._kill(each.process)
        await asyncio.gather(*(each.task for each in left))

    def _kill(self, process: asyncio.subprocess.Process) -> None:
        if process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)

    async def _reap(self, name: str, process: asyncio.subprocess.Process) -> None:
        code = await process.wait()
        found = self._all[name]
        if found.replica.stopping:
            del self._all[name]
        else:
            end: End = Exited(code if code >= 0 else 128 - code)
            found.replica = replace(found.replica, state="ended", since=self._now(), end=end)
        self._changed.set()
