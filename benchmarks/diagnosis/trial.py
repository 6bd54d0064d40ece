"""One run of one fault: a real `elastic-run`, its workers, and what it says."""

import asyncio
import contextlib
import importlib.util
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Generator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from .corpus import Draw, Fault

VICTIM = Path(__file__).with_name("scripts") / "victim.py"

HANG_TIMEOUT = 2.0
"""Seconds, of the launcher. A user's would be longer; what is found does not depend on it."""

GIVES_UP = 25.0
"""Seconds after the evidence is sufficient, until a fault counts as missed."""

INNOCENT_SECONDS = 60.0
"""For an innocent run to end by itself."""

LOOK = 0.02


@dataclass(frozen=True, slots=True)
class Outcome:
    """What came of a run.

    Attributes:
        kind, rank: of the first finding that names somebody; empty and None where there was none. What is told on weak
            evidence names nobody, but for slow ranks, of which there is no other.
        seconds: from sufficient evidence to that finding; None where there was none.
        words: the sentence, or what went wrong with the run.
        valid: the run took place as it was meant.
    """

    kind: str
    rank: int | None
    seconds: float | None
    words: str
    valid: bool = True


MEMORY = 300 << 20
"""Bytes that a control group may have."""

CLOCK = 30
"""Seconds by which the clock of the second agent is ahead."""


def lacks(fault: Fault) -> str:
    """Why this machine cannot inject it; empty where it can."""
    if fault.torch and importlib.util.find_spec("torch") is None:
        return "torch is not installed"
    if fault.apart == "clock" and not shutil.which("faketime"):
        return "faketime is not installed"
    if fault.apart == "network":
        able = shutil.which("nft") and subprocess.run([*NETWORK, "true"], capture_output=True, check=False)
        return "" if able and able.returncode == 0 else "it takes nft and the right to make a network namespace"
    if fault.apart == "memory":
        with _memory_group() as made:
            return "" if made else "it takes the right to make a memory control group"
    return ""


NETWORK = ("unshare", "--net", "sh", "-c", 'ip link set lo up && exec "$@"', "sh")


@contextlib.contextmanager
def _memory_group() -> Generator[Path | None]:
    """One of MEMORY bytes, of either version of control groups; None where none can be made."""
    for parent in (Path("/sys/fs/cgroup"), Path("/sys/fs/cgroup/memory")):
        made = parent / f"elastic-run-diagnosis_{os.getpid()}_{time.monotonic_ns()}"
        with contextlib.suppress(OSError):
            made.mkdir()
            limit = next(
                (made / name for name in ("memory.max", "memory.limit_in_bytes") if (made / name).exists()), None
            )
            try:
                if limit:
                    limit.write_text(str(MEMORY))
                    yield made
                    return
            finally:
                _remove(made)
    yield None


def _remove(group: Path) -> None:
    for _ in range(200):  # the kernel keeps it until its processes have gone
        with contextlib.suppress(OSError):
            group.rmdir()
            return
        time.sleep(0.05)


async def run(draw: Draw, port: int) -> Outcome:
    """Runs it; `port`: of a server that never answers."""
    with contextlib.ExitStack() as stack:
        folder = stack.enter_context(
            tempfile.TemporaryDirectory(prefix="elastic-run-diagnosis_", ignore_cleanup_errors=True)
        )
        group = stack.enter_context(_memory_group()) if draw.fault.apart == "memory" else None
        environment = _environment(folder) | ({"VICTIM_GROUP": str(group)} if group else {})
        journal, log = Path(folder) / "journal", Path(folder) / "log"
        traces = [Path(folder) / f"trace-{number}" for number in range(draw.agents)]
        endpoint = _free_port()
        processes = list[asyncio.subprocess.Process]()
        try:
            with log.open("wb") as output:
                for number, trace in enumerate(traces):
                    process = await asyncio.create_subprocess_exec(
                        *_command(draw, number, endpoint, trace, journal, port),
                        stdin=asyncio.subprocess.DEVNULL,
                        stdout=output,
                        stderr=output,
                        env=environment,
                        start_new_session=True,
                    )
                    processes.append(process)
            return await _watch(draw, processes[0], journal, traces, log)
        finally:
            for process in processes:
                await end_launcher(process)


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        return server.getsockname()[1]


def _command(draw: Draw, number: int, endpoint: int, trace: Path, journal: Path, port: int) -> list[str]:
    """Of one agent."""
    apart = draw.fault.apart
    command = [*NETWORK] if apart == "network" else []
    if apart == "clock" and f"n{number}" == draw.fault.node:
        command += ["env", "FAKETIME_DONT_FAKE_MONOTONIC=1", "faketime", "-f", f"+{CLOCK}"]
    command += [sys.executable, "-m", "elastic_run", f"--rdzv-id=diagnosis-{draw.number}"]
    if draw.agents == 1:
        command += ["--standalone", f"--nproc-per-node={draw.world}"]
    else:
        ranks = draw.world if apart == "roles" else draw.world // draw.agents
        command += [f"--nnodes={draw.agents}", f"--nproc-per-node={ranks}", f"--rdzv-endpoint=127.0.0.1:{endpoint}"]
        command += [f"--node-name=n{number}"]
    if apart == "roles":
        command += ["--roles=work:1,rest:1", f"--node-role={('work', 'rest')[number]}"]
    return [
        *command,
        f"--hang-timeout={HANG_TIMEOUT:g}",
        "--max-restarts=0",
        f"--trace={trace}",
        str(VICTIM),
        draw.fault.name,
        str(draw.rank),
        str(draw.step),
        str(port),
        str(journal),
        *(["gloo"] if draw.gloo else []),
    ]


def _environment(folder: str) -> dict[str, str]:
    """A killed launcher leaves its logs behind, in that folder."""
    return {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONFAULTHANDLER": "", "TMPDIR": folder}


async def _watch(
    draw: Draw, process: asyncio.subprocess.Process, journal: Path, traces: Sequence[Path], log: Path
) -> Outcome:
    started = time.monotonic()
    sufficient: float | None = None
    while True:
        begun = _begun(journal)
        if begun is not None:
            sufficient = begun + draw.fault.patience * HANG_TIMEOUT
        over = process.returncode is not None
        if found := next(filter(None, map(_found, traces)), None):
            at, args = found
            late = at - sufficient if sufficient is not None else None
            rank = args.get("rank")
            return Outcome(str(args.get("kind")), cast("int | None", rank), late, str(args.get("reason")))
        now = time.monotonic()
        if over:
            return Outcome("", None, None, _last(log), valid=begun is not None)
        limit = GIVES_UP if draw.fault.kinds else INNOCENT_SECONDS
        if (sufficient is not None and now > sufficient + limit) or now > started + INNOCENT_SECONDS + limit:
            return Outcome("", None, None, "nothing was found", valid=begun is not None)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(LOOK):
                await process.wait()


def _begun(journal: Path) -> float | None:
    try:
        return float(journal.read_text().split()[0])
    except (OSError, IndexError, ValueError):
        return None


def _found(trace: Path) -> tuple[float, dict[str, Any]] | None:
    """The first diagnosis in a trace that names somebody: when, and its arguments. Any: JSON."""
    for at, found in read_findings(trace):
        if found.get("strength") != "weak" or str(found.get("kind")).startswith(("slow-", "out-of-memory")):
            return at, found
    return None


def read_findings(trace: Path) -> list[tuple[float, dict[str, Any]]]:
    """All diagnoses in a trace, in order: when, in seconds, and their arguments. Any: JSON."""
    try:
        lines = trace.read_text(errors="replace").splitlines()
    except OSError:
        return []
    events = [json.loads(line.rstrip(",\n")) for line in lines if '"name":"diagnosis"' in line]
    return [(event["ts"] / 1e6, event.get("args", {})) for event in events]


def _last(log: Path) -> str:
    """What a launcher says of its end."""
    lines = log.read_text(errors="replace").splitlines()
    return next((line for line in lines if " failed: " in line), lines[-1] if lines else "")[:200]


async def end_launcher(process: asyncio.subprocess.Process) -> None:
    """Ends the launcher, also one that faketime has started, and, by its guardian, all that it has started."""
    if process.returncode is None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        await process.wait()
