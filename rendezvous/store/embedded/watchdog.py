"""Looks after the etcd of this machine while a job runs: tells of a full disk, starts a killed supervisor.

A supervisor starts its etcd again, but nobody starts a supervisor: where it is killed, its etcd dies with it.

Invariant: old data never takes the place of a living store's. Only that is started which was killed: the same command
line, hence the same folder; under the lock of the port; and only where the lock's file still names the supervisor that
was killed, so that nobody has kept anything at this port since. A supervisor that ended otherwise has removed that
file: it was told to stop, or its etcd could not begin. It is not started again, and a line says so.
"""

import asyncio
import fcntl
import os
import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from ...base.errors import NoUsableEtcd
from ...host.process_limits import all_allowed
from ..contract import Store
from ..endpoint import Endpoint
from . import supervisor
from .binary import child_environment
from .folders import MemberFolder, last_lines

_ENDS_SECONDS = 60.0  # within which the ends of supervisors are counted, for the pause before the next start
_SERVED = "--served"

Announce = Callable[[str], None]


class SupervisorFailed(NoUsableEtcd):
    """The supervisor's process did not start; the message says why."""


@dataclass(frozen=True, slots=True)
class Kept:
    """A member on this machine, and its supervisor.

    Attributes:
        endpoint: where it answers.
        supervisor_pid: the process id of its supervisor, which decides when the member stops.
        folder: holds its data and its log.
        lock: of its port; the supervisor writes its process id into it.
        command: the supervisor's whole command line.
    """

    endpoint: Endpoint
    supervisor_pid: int
    folder: Path
    lock: Path
    command: tuple[str, ...]


def supervisor_of(endpoint: Endpoint, lock: Path) -> Kept | None:
    """The living supervisor that holds this lock, by its own command line; None where none can be seen.

    The number in the file may be that of another process by now, or of another container.
    """
    number = _number(lock)
    return None if number is None else _kept(endpoint, lock, number, _command_line(number))


def killed_supervisor(endpoint: Endpoint, lock: Path) -> Kept | None:
    """The supervisor that was killed, by what it wrote into the lock's file; None where it ended otherwise.

    For a caller that holds the lock: then neither that supervisor nor its etcd lives.
    """
    number, command = _number(lock), _written(lock)[1]
    return None if number is None else _kept(endpoint, lock, number, command)


def _kept(endpoint: Endpoint, lock: Path, number: int, command: tuple[str, ...]) -> Kept | None:
    try:
        if Path(command[command.index("--lock") + 1]) != lock:
            return None
        return Kept(endpoint, number, Path(command[command.index("--home") + 1]), lock, command)
    except (ValueError, IndexError):
        return None


def is_lone(kept: Kept) -> bool:
    """Its etcd is the only member of its store."""
    try:
        return "," not in kept.command[kept.command.index("--initial-cluster") + 1]
    except (ValueError, IndexError):
        return False


def _number(lock: Path) -> int | None:
    try:
        return int(_written(lock)[0])
    except ValueError:
        return None


def _written(lock: Path) -> tuple[str, tuple[str, ...]]:
    """The process id and the command line that a supervisor wrote into the lock's file."""
    try:
        number, _, command = lock.read_bytes().partition(b"\n")
    except OSError:
        return "", ()
    return os.fsdecode(number), tuple(os.fsdecode(command).split("\0")[:-1])


def _command_line(pid: int) -> tuple[str, ...]:
    try:
        return tuple(os.fsdecode(Path(f"/proc/{pid}/cmdline").read_bytes()).split("\0")[:-1])
    except OSError:
        return ()


def full_disk(folder: Path) -> str:
    """That the disk has no room for etcd, in words; empty where it has."""
    try:
        free = shutil.disk_usage(folder).free
    except OSError:
        return ""
    if free >= supervisor.ROOM_BYTES:
        return ""
    return f"the disk of {folder} is full ({free >> 20} MiB are free), so the store's etcd cannot write there"


def trouble(folder: Path) -> str:
    """Why the member of that folder does not serve, in words; empty where nothing tells."""
    home = MemberFolder(folder)
    exited = supervisor.EXITED in last_lines(home.log, 60)
    return full_disk(folder) or (f"its etcd has exited; {home.last_words()}" if exited else "")


def take_lock(path: Path, *, shared: bool = False) -> int | None:
    """A descriptor that holds the lock, or None where another process has it."""
    while True:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        try:
            fcntl.flock(descriptor, (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | fcntl.LOCK_NB)
            if path.exists() and os.path.samestat(path.stat(), os.fstat(descriptor)):
                return descriptor
        except BlockingIOError:
            os.close(descriptor)
            return None
        except OSError:
            os.close(descriptor)
            raise
        os.close(descriptor)  # its last holder removed the file between the two calls


async def start_supervisor(command: Sequence[str], lock: int) -> int:
    """Starts a supervisor that holds this lock, and returns its process id. Raises SupervisorFailed, OSError."""
    with all_allowed():
        process = await asyncio.create_subprocess_exec(
            *command,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            env=child_environment(),
            pass_fds=(lock,),
            start_new_session=True,
        )
    output, errors = await process.communicate()
    if not output.strip().isdigit():
        raise SupervisorFailed(f"the supervisor of the store did not start: {errors.decode(errors='replace').strip()}")
    return int(output)


async def look_after(kept: Kept, store: Store, announce: Announce) -> None:
    """Until it is cancelled: says why the member does not answer, and starts a supervisor that was killed again.

    Each agent of the machine does this; the lock lets one of them start it. What was started stays where this is
    cancelled: other jobs may wait for it.

    Args:
        announce: told what has happened and what is done.
    """
    async with asyncio.TaskGroup() as group:
        group.create_task(_tell_of_disk(kept.folder, store, announce))
        group.create_task(_replace(kept, announce))


async def _tell_of_disk(folder: Path, store: Store, announce: Announce) -> None:
    health = store.health
    while True:
        if not health.reachable and (full := full_disk(folder)):
            announce(f"{full}: it restarts when there is room")
        health = await store.health_changed()


async def _replace(first: Kept, announce: Announce) -> None:
    kept: Kept | None = first
    ends: list[float] = []
    now = asyncio.get_running_loop().time
    while kept is not None:
        await end_of(kept)
        ends = [*(at for at in ends if now() - at < _ENDS_SECONDS), now()]
        announce(f"the supervisor of the store's etcd at {kept.endpoint} has exited: waiting until it is restarted")
        await asyncio.sleep(supervisor.pause(len(ends)))
        try:
            kept = await _next(kept, announce)
        except (SupervisorFailed, OSError) as error:  # too many processes, too little memory: both may pass
            announce(f"{error}; retrying")


async def _next(ended: Kept, announce: Announce) -> Kept | None:
    """The supervisor after one that has ended, started here unless another agent is quicker; None: there is none."""
    interval = 0.01
    while True:
        if _number(ended.lock) != ended.supervisor_pid:
            following = supervisor_of(ended.endpoint, ended.lock)
            if following is None or following.folder != ended.folder:
                _give_up(ended, "it was asked to stop, its etcd could not serve, or another has replaced it", announce)
                return None
            return following
        lock = take_lock(ended.lock)
        if lock is not None:
            try:
                if _number(ended.lock) == ended.supervisor_pid:  # still, now that nobody can change it
                    if MemberFolder(ended.folder).written:
                        return await start_again(ended, lock, announce)
                    _give_up(ended, "its data was removed", announce)
                    return None
            finally:
                os.close(lock)  # the supervisor that was started holds its own copy
        # The dead supervisor's etcd is just dying, or another agent starts it: neither tells when it is done.
        await asyncio.sleep(interval)
        interval = min(0.5, interval * 1.25)


async def start_again(ended: Kept, lock: int, announce: Announce) -> Kept:
    """Starts a killed supervisor with its own command line, on its data. Raises SupervisorFailed, OSError."""
    announce(f"restarting etcd at {ended.endpoint} with its data in {ended.folder}")
    options = ended.command.index("--")  # where etcd's own command line begins
    served = () if _SERVED in ended.command else (_SERVED,)
    command = (*ended.command[:options], *served, *ended.command[options:])
    return Kept(ended.endpoint, await start_supervisor(command, lock), ended.folder, ended.lock, command)


def _give_up(ended: Kept, why: str, announce: Announce) -> None:
    announce(
        f"the supervisor of the store's etcd at {ended.endpoint} is not restarted: {why}; "
        f"{MemberFolder(ended.folder).last_words()}. If the store does not answer, run elastic-run on this machine "
        "with the same endpoints and --store-dir: it starts a member with the data that is there"
    )


async def end_of(kept: Kept) -> None:
    """Waits until that member's supervisor has ended."""
    try:
        pidfd = os.pidfd_open(kept.supervisor_pid)
    except ProcessLookupError:
        return
    loop, ended = asyncio.get_running_loop(), asyncio.Event()
    loop.add_reader(pidfd, ended.set)
    try:
        if _command_line(kept.supervisor_pid) == kept.command:  # else the number is another process's by now
            await ended.wait()
    finally:
        loop.remove_reader(pidfd)
        os.close(pidfd)
