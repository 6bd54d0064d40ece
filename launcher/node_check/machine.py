"""Figures of this machine that are only measured for a check, since they cost it something: CPU, disk, names.

Whatever may hang (a disk, the DNS) runs in a thread that is given up after its time.
"""

import asyncio
import contextlib
import hashlib
import os
import socket
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import psutil

from ...rendezvous.base.frozen import dataclass
from ...rendezvous.base.threads import T, Threads
from ...rendezvous.store.endpoint import Endpoint
from ..doctor.findings import MIB, Finding

DISK_BYTES, DISK_SECONDS = 16 * MIB, 20.0
DNS_SECONDS = 10.0
HASH_BYTES = 64 * MIB

LITTLE_MEMORY = 256 * MIB
"""Bytes: an agent and an interpreter take a part of it before the script begins."""

SLOW_DISK, SLOW_CPU = 5e6, 20e6
"""Bytes a second: below these, something is wrong with the machine, whatever the job does."""

SLOW_NAME = 2.0
"""Seconds."""


@dataclass(frozen=True, slots=True)
class Figures:
    """What was measured; None where it could not be, for the reason of that name in `problems`.

    Attributes:
        cpu: bytes a second that one core hashes.
        load: processes that wanted a core over the last minute, for each core.
        memory: bytes that are free.
        disk: bytes a second that are written and synced in `folder`.
        names: seconds that the endpoints' names took to resolve.
        port: a port that this machine gave for listening on its own address.
    """

    cpu: float
    load: float
    memory: int
    folder: str
    disk: float | None
    names: float | None
    port: int | None
    problems: tuple[tuple[str, str], ...] = ()


async def measure(endpoints: Sequence[Endpoint], address: str, folder: Path | None) -> Figures:
    """All of it, in at most DISK_SECONDS + DNS_SECONDS."""
    where = _folder(folder)
    problems: list[tuple[str, str]] = []

    async def tried(name: str, work: Callable[[], T], seconds: float) -> T | None:
        try:
            return await Threads(1).run(work, seconds)
        except TimeoutError:
            problems.append((name, f"no answer within {seconds:g} s"))
        except OSError as error:
            problems.append((name, error.strerror or str(error)))
        return None

    cpu = await asyncio.to_thread(_cpu)
    disk = await tried("disk", lambda: _disk(where), DISK_SECONDS)
    names = await tried("names", lambda: _names(endpoints), DNS_SECONDS)
    port = await tried("ports", lambda: _port(address), DNS_SECONDS)
    load = os.getloadavg()[0] / max(1, len(os.sched_getaffinity(0)))
    return Figures(cpu, load, psutil.virtual_memory().available, str(where), disk, names, port, tuple(problems))


def of_figures(figures: Figures) -> Sequence[Finding]:
    """What the figures mean (pure)."""
    found: list[Finding] = []
    problems = dict(figures.problems)

    def add(subject: str, text: str, *, bad: bool) -> None:
        found.append(Finding(subject, "problem" if bad else "ok", text))

    add(
        "CPU",
        f"one core hashes {figures.cpu / 1e6:.0f} MB/s; load {figures.load:.1f} a core",
        bad=figures.cpu < SLOW_CPU,
    )
    add("memory", f"{figures.memory // MIB} MiB are free", bad=figures.memory < LITTLE_MEMORY)
    if figures.disk is None:
        add("disk", f"{figures.folder}: {problems.get('disk', 'not measured')}", bad=True)
    else:
        text = f"{figures.folder} takes {figures.disk / 1e6:.0f} MB/s, synced"
        add("disk", text, bad=figures.disk < SLOW_DISK)
    if figures.names is None:
        add("DNS", f"the endpoints' names do not resolve: {problems.get('names', '')}", bad=True)
    else:
        late = figures.names > SLOW_NAME
        found.append(Finding("DNS", "note" if late else "ok", f"the endpoints resolve in {figures.names:.2f} s"))
    if figures.port is None:
        add("ports", f"no port of this machine's address can be listened on: {problems.get('ports', '')}", bad=True)
    else:
        add("ports", "its own address can be listened on", bad=False)
    return found


def _folder(wanted: Path | None) -> Path:
    return wanted if wanted is not None and wanted.is_dir() else Path(tempfile.gettempdir())


def _cpu() -> float:
    block = bytes(MIB)
    begun = time.perf_counter()
    made = hashlib.sha256()
    for _ in range(HASH_BYTES // MIB):
        made.update(block)
    return HASH_BYTES / max(1e-6, time.perf_counter() - begun)


def _disk(folder: Path) -> float:
    block = os.urandom(MIB)
    begun = time.perf_counter()
    with tempfile.NamedTemporaryFile(prefix=".elastic-run-check-", dir=folder) as file:
        for _ in range(DISK_BYTES // MIB):
            file.write(block)
        file.flush()
        os.fsync(file.fileno())
    return DISK_BYTES / max(1e-6, time.perf_counter() - begun)


def _names(endpoints: Sequence[Endpoint]) -> float:
    begun = time.perf_counter()
    for endpoint in endpoints:
        socket.getaddrinfo(endpoint.host, endpoint.port, type=socket.SOCK_STREAM)
    return time.perf_counter() - begun


def _port(address: str) -> int:
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    with contextlib.closing(socket.create_server((address, 0), family=family)) as server:
        return server.getsockname()[1]
