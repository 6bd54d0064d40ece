"""Asks the machine, the store and the workers' Python; judges nothing.

Everything is bounded in time, and whatever cannot be learnt is said in words. Nothing stays behind: what is written to
try a disk or the store is removed, and a key goes with its lease.
"""

import asyncio
import contextlib
import json
import os
import resource
import secrets
import shutil
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path

from ...elastic_agent.diagnosis.stacks import MISSING, Stacks, py_spy
from ...elastic_agent.processes import shim
from ...rendezvous.base.errors import NoUsableEtcd, StoreError
from ...rendezvous.host.control_groups import usable_memory
from ...rendezvous.identity.secret import NoIdentity
from ...rendezvous.store.contract import Put
from ...rendezvous.store.embedded.binary import binary_version, find_binary, trying_out_only
from ...rendezvous.store.endpoint import Endpoint, is_local, resolve, routable_address
from ..options.preflight import APART, check_platform, workers_python
from ..settings import Credentials, Trust
from ..store_access import etcd_at, nobody_listens, stranger
from .findings import Machine, Python, Store

STORE_SECONDS = 10.0
"""For the store to answer at all."""

PYTHON_SECONDS = 120.0
"""For the workers' Python to import torch, from a cold network file system."""

STACK_SECONDS = 10.0
"""For a process of the workers' Python to have begun."""

SAMPLES = 15
"""Requests whose median is told."""

PROBE = "/elastic-run-doctor/"
"""Keys under it are written to see how long that takes."""

_ASK = """
import json, sys
found = {"version": sys.version.split()[0]}
try:
    import torch
except ImportError:
    pass
else:
    found["torch"] = torch.__version__
    found["cuda"] = torch.version.cuda or ""
    found["gpus"] = torch.cuda.device_count() if torch.version.cuda else 0
    try:
        found["nccl"] = ".".join(map(str, torch.cuda.nccl.version())) if torch.version.cuda else ""
    except Exception:
        found["nccl"] = ""
    if found["cuda"] and not found["nccl"]:
        from importlib.metadata import PackageNotFoundError, version
        for major in (found["cuda"].partition(".")[0], "12", "11"):
            try:
                found["nccl"] = version("nvidia-nccl-cu" + major)
                break
            except PackageNotFoundError:
                pass
    try:
        from torch.distributed import constants
        found["collective"] = {"gloo": constants.default_pg_timeout.total_seconds()}
        nccl = getattr(constants, "default_pg_nccl_timeout", None)
        if nccl is not None and torch.version.cuda:
            found["collective"]["nccl"] = nccl.total_seconds()
    except Exception:
        pass
print(json.dumps(found))
"""
"""What the workers' Python says of itself. Its imports are those that a script makes; it opens no device."""


def machine(peers: Sequence[Endpoint]) -> Machine:
    system = os.uname()
    python = ".".join(map(str, sys.version_info[:3]))
    host, folder = socket.gethostname(), tempfile.gettempdir()
    return Machine(
        host=host,
        platform=f"Linux {system.release} on {system.machine}, Python {python}",
        trouble=check_platform(system.sysname, system.release, sys.version_info[:2]) or "",
        cores=_cores(),
        memory=usable_memory(),
        shared_memory=_free("/dev/shm"),
        files=_limit(resource.RLIMIT_NOFILE),
        processes=_limit(resource.RLIMIT_NPROC),
        folder=folder,
        free=_free_to_write(folder),
        addresses=resolve(host),
        address=routable_address(peers),
    )


def _cores() -> float:
    allowed = float(len(os.sched_getaffinity(0)))
    with contextlib.suppress(OSError, ValueError):  # no control group of this kind, or no quota
        quota, period = Path("/sys/fs/cgroup/cpu.max").read_text(encoding="ascii").split()
        return min(allowed, int(quota) / int(period))
    return allowed


def _free(path: str) -> int | None:
    try:
        return shutil.disk_usage(path).free
    except OSError:
        return None


def _limit(which: int) -> int | None:
    hard = resource.getrlimit(which)[1]
    return None if hard == resource.RLIM_INFINITY else hard


def _free_to_write(path: str) -> int | str:
    try:
        Path(tempfile.mkdtemp(prefix=".elastic-run-", dir=path)).rmdir()  # tried: permissions alone do not tell
        return shutil.disk_usage(path).free
    except OSError as error:
        return os.strerror(error.errno or 0)


def python(environ: Mapping[str, str]) -> Python:
    path = environ.get("PYTHON_EXEC", "") or workers_python(environ, sys.executable, Path(sys.prefix))[0]
    try:
        done = subprocess.run(
            [path, "-c", APART + _ASK],
            capture_output=True,
            text=True,
            timeout=PYTHON_SECONDS,
            check=False,
            env=dict(environ),
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        why = f"no answer within {PYTHON_SECONDS:g} s" if isinstance(error, subprocess.TimeoutExpired) else str(error)
        return Python(path, problem=why)
    try:
        found = json.loads(done.stdout.strip().splitlines()[-1])
    except (ValueError, IndexError):
        last = (done.stderr.strip().splitlines() or [f"exit code {done.returncode}"])[-1]
        return Python(path, problem=f"it does not work: {last}")
    return Python(
        path,
        version=str(found["version"]),
        torch=str(found.get("torch", "")),
        cuda=str(found.get("cuda", "")),
        nccl=str(found.get("nccl", "")),
        gpus=int(found.get("gpus", 0)),
        collective=tuple((name, float(seconds)) for name, seconds in found.get("collective", {}).items()),
    )


async def stacks(python: Python) -> str:
    """Why the stacks of workers cannot be read, tried with one that is started as they are; empty where they can."""
    program = py_spy()
    if program is None or python.problem:
        return MISSING if program is None else python.problem
    command = (sys.executable, "-I", "-S", shim.__file__, str(os.getpid()), "-", "--", python.path, "-c", "input()")
    process = await asyncio.create_subprocess_exec(*command, stdin=subprocess.PIPE, stderr=subprocess.DEVNULL)
    try:
        reader, until = Stacks(program), time.monotonic() + STACK_SECONDS
        while True:
            found = await reader.take(process.pid)
            if found.frames:
                return ""
            if time.monotonic() >= until:
                return found.trouble
            await asyncio.sleep(0.1)  # it may not have begun
    finally:
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        await process.wait()


async def store(endpoints: Sequence[Endpoint], credentials: Credentials, trust: Trust) -> Store:
    """The store at these endpoints; writes and removes a few keys where it answers."""
    where = ",".join(map(str, endpoints))
    here = any(is_local(endpoint.host) and not endpoint.own for endpoint in endpoints)
    binary, warning = await _binary() if here else ("", None)
    if await nobody_listens(endpoints):
        return Store(where, None, "nothing listens there", here, binary, warning)
    try:
        etcd, _, _ = etcd_at(endpoints, credentials, trust, lambda line: None, make=True)
    except NoIdentity as error:
        return Store(where, None, str(error), here, binary, warning)
    try:
        async with asyncio.timeout(STORE_SECONDS):
            version = (await etcd.status()).version
            lease = await etcd.grant(int(STORE_SECONDS) * 2)
        key = f"{PROBE}{secrets.token_hex(8)}"
        try:
            write = await _median(lambda: etcd.txn((), (Put(key, b"", lease),), idempotent=True))
            read = await _median(lambda: etcd.get(key))
        finally:
            await etcd.revoke(lease)
        return Store(where, version, "", here, binary, warning, read, write)
    except (StoreError, TimeoutError) as error:
        why = await stranger(endpoints, trust) or str(error) or f"no answer within {STORE_SECONDS:g} s"
        return Store(where, None, why, here, binary, warning)
    finally:
        await etcd.close()


async def _median(ask: Callable[[], Awaitable[object]]) -> float:
    loop = asyncio.get_running_loop()
    times: list[float] = []
    for _ in range(SAMPLES):
        begun = loop.time()
        await ask()
        times.append(loop.time() - begun)
    return statistics.median(times)


async def _binary() -> tuple[str, str | None]:
    try:
        path = find_binary()
        version = await binary_version(path)
    except NoUsableEtcd:
        return "", None
    return f"etcd {'.'.join(map(str, version))} ({path})", trying_out_only(version)


def grace(environ: Mapping[str, str]) -> tuple[float, str] | None:
    """Seconds between the platform's SIGTERM and its SIGKILL, and whose they are; None where it does not tell."""
    if "SLURM_JOB_ID" in environ and shutil.which("scontrol"):
        with contextlib.suppress(OSError, subprocess.SubprocessError, ValueError, IndexError):
            done = subprocess.run(
                ["scontrol", "show", "config"], capture_output=True, text=True, timeout=STORE_SECONDS, check=True
            )
            (line,) = (line for line in done.stdout.splitlines() if line.startswith("KillWait"))
            return float(line.partition("=")[2].split()[0]), "Slurm's KillWait"
    return None
