"""What the facts of a machine mean for a job (pure): findings in words, each with what to do."""

from collections.abc import Iterator
from typing import Literal

from ...rendezvous.base.frozen import dataclass
from ..settings import Timing

Grade = Literal["ok", "note", "problem"]
"""A problem ends a job or keeps it from starting; a note costs something, or is a problem for some jobs."""

MIB = 2**20

LITTLE_DISK = 1024 * MIB
"""Bytes for an embedded etcd, whose members lay out 128 MB each, and for logs."""

LITTLE_SHARED_MEMORY = 512 * MIB
"""Bytes. Loader processes pass batches through it, and containers have 64 MB unless told otherwise."""

SLOW_READ, SLOW_WRITE = 0.05, 0.1
"""Seconds. etcd's own advice is a disk that syncs in 10 ms; a write waits for a majority of such disks."""

FEW_FILES = 1024
"""Descriptors that an agent with a hundred workers, or in a job of some hundred nodes, does not get by with."""


@dataclass(frozen=True, slots=True)
class Finding:
    """One line: what was looked at, and what was found."""

    subject: str
    grade: Grade
    text: str


@dataclass(frozen=True, slots=True)
class Python:
    """The workers' Python.

    Attributes:
        problem: why nothing is known of it.
        torch, cuda, nccl: versions; empty where there is none.
        gpus: that torch sees.
        collective: seconds after which torch gives up a collective that stands still, by backend.
    """

    path: str
    version: str = ""
    problem: str = ""
    torch: str = ""
    cuda: str = ""
    nccl: str = ""
    gpus: int = 0
    collective: tuple[tuple[str, float], ...] = ()


@dataclass(frozen=True, slots=True)
class Store:
    """The store that the job would use.

    Attributes:
        where: its endpoints.
        version: of the etcd that answers; None where none does, for the reason `problem`.
        here: an endpoint is this machine, which would start an etcd there.
        binary: of the etcd on this machine, and its version; empty where it has none.
        warning: of that version.
        read, write: median seconds of a linearizable read, and of a write.
    """

    where: str
    version: str | None
    problem: str
    here: bool
    binary: str
    warning: str | None
    read: float | None = None
    write: float | None = None


@dataclass(frozen=True, slots=True)
class Machine:
    """This machine.

    Attributes:
        cores: that this process may use, those of its control group's quota.
        memory: bytes that it may use.
        shared_memory: bytes that /dev/shm has; None where there is none.
        files, processes: hard limits; None: there is none.
        folder, free: where a job writes to, and how many bytes it has left; or why nothing can be written there.
        addresses: that its host name resolves to.
        address: that it would tell other machines.
    """

    host: str
    platform: str
    trouble: str
    cores: float
    memory: int
    shared_memory: int | None
    files: int | None
    processes: int | None
    folder: str
    free: int | str
    addresses: tuple[str, ...]
    address: str


def of_machine(machine: Machine) -> Iterator[Finding]:
    """Its kernel, size, limits, folders and name."""
    yield Finding("platform", "problem" if machine.trouble else "ok", machine.trouble or machine.platform)
    shared = "none" if machine.shared_memory is None else f"{machine.shared_memory // MIB} MiB"
    yield Finding("size", "ok", f"{machine.cores:g} cores, {machine.memory // MIB} MiB of memory")
    small = machine.shared_memory is None or machine.shared_memory < LITTLE_SHARED_MEMORY
    yield Finding(
        "shared memory",
        "note" if small else "ok",
        f"/dev/shm: {shared}"
        + ("; data loaders with processes pass batches through it: make it larger (--shm-size)" if small else ""),
    )
    few = machine.files is not None and machine.files < FEW_FILES
    yield Finding(
        "open files",
        "note" if few else "ok",
        f"at most {machine.files if machine.files is not None else 'unlimited'}"
        + ("; a large job needs more: raise the hard limit (ulimit -Hn)" if few else ""),
    )
    yield Finding("processes", "ok", f"at most {machine.processes if machine.processes is not None else 'unlimited'}")
    yield _of_folder(machine.folder, machine.free)
    yield _of_name(machine)


def _of_folder(path: str, free: int | str) -> Finding:
    if isinstance(free, str):
        text = f"{path} cannot be written ({free}): change its permissions, or set TMPDIR"
        return Finding("folder", "problem", text)
    if free < LITTLE_DISK:
        text = f"{path} has {free // MIB} MiB left, and an etcd with logs needs {LITTLE_DISK // MIB}"
        return Finding("folder", "problem", f"{text}: make room there")
    return Finding("folder", "ok", f"{path}: {free // MIB} MiB free")


def _of_name(machine: Machine) -> Finding:
    told = f"other machines are told {machine.address}"
    if not machine.addresses:
        text = f"{machine.host} does not resolve here; {told} (--local-addr changes it)"
        return Finding("host name", "note", text)
    if all(address.startswith("127.") or address == "::1" for address in machine.addresses):
        return Finding("host name", "ok", f"{machine.host} resolves to loopback here; {told}")
    return Finding("host name", "ok", f"{machine.host} is {', '.join(machine.addresses)}; {told}")


def of_store(store: Store) -> Iterator[Finding]:
    """Whether it answers, what it is, and how quickly."""
    if store.version is not None:
        yield Finding("store", "ok", f"etcd {store.version} answers at {store.where}")
        for what, seconds, slow in (("read", store.read, SLOW_READ), ("write", store.write, SLOW_WRITE)):
            if seconds is not None:
                text = f"a {what} takes {seconds * 1000:.1f} ms"
                late = "; each change of membership waits for several: look at the disks and the network of etcd"
                yield Finding("store", "note" if seconds > slow else "ok", text + (late if seconds > slow else ""))
    elif store.here and store.binary:
        yield Finding("store", "ok", f"nothing answers at {store.where}, where a job would start {store.binary}")
    elif store.here:
        text = f"nothing answers at {store.where}, and this machine has no etcd: install etcd-server"
        yield Finding("store", "problem", text)
    else:
        yield Finding("store", "problem", f"{store.where} does not answer: {store.problem}")
    if store.warning and store.version is None:
        yield Finding("store", "note", store.warning)


def of_stacks(trouble: str) -> Finding:
    """Whether the Python stacks of workers can be read; `trouble`: why not."""
    if trouble:
        return Finding(
            "Python stacks", "note", f"{trouble}: a rank that stands still is named only by what the kernel proves"
        )
    return Finding("Python stacks", "ok", "py-spy reads those of workers")


def of_python(python: Python) -> Iterator[Finding]:
    if python.problem:
        yield Finding("workers' Python", "problem", f"{python.path}: {python.problem}")
        return
    yield Finding("workers' Python", "ok", f"{python.path}, version {python.version}")
    if not python.torch:
        yield Finding("torch", "note", "is not installed there; scripts of other frameworks do not need it")
        return
    parts = [f"CUDA {python.cuda}" if python.cuda else "no CUDA", f"NCCL {python.nccl}" if python.nccl else ""]
    yield Finding("torch", "ok", f"{python.torch} ({', '.join(filter(None, parts))}), {python.gpus} GPUs")


def of_deadlines(
    times: Timing, shutdown: float, python: Python, grace: tuple[float, str] | None = None
) -> Iterator[Finding]:
    """The times that are in force, from the shortest purpose to the longest, and where two contradict each other.

    Args:
        shutdown: its --shutdown-timeout.
        grace: seconds between the platform's SIGTERM and its SIGKILL, and whose they are; None where it does not tell.
    """
    yield Finding("deadlines", "ok", f"lease_ttl {times.lease_ttl:g} s: a silent node is lost after that")
    late = grace is not None and shutdown >= grace[0]
    known = "unknown" if grace is None else f"{grace[0]:g} s ({grace[1]})"
    yield Finding(
        "deadlines",
        "problem" if late else "ok",
        f"shutdown timeout {shutdown:g} s for workers to end after SIGTERM; the platform's grace is {known}"
        + ("; the platform kills everything first: lower --shutdown-timeout, or raise the grace" if late else ""),
    )
    yield Finding(
        "deadlines",
        "ok",
        f"join_timeout {times.join_timeout:g} s for the first round, recovery_timeout {times.recovery_timeout:g} s "
        f"below the minimum, close_timeout {times.close_timeout:g} s to deregister",
    )
    for backend, seconds in python.collective:
        short = seconds <= times.lease_ttl + 1
        yield Finding(
            "deadlines",
            "note" if short else "ok",
            f"a {backend} collective gives up after {seconds:g} s; survivors of a lost node do not wait for that"
            + (
                ": it is shorter than lease_ttl, so a silent node looks like a failure of the script; raise it"
                if short
                else ""
            ),
        )
