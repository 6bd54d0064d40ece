"""The main job, on one machine: a DDP script lives through four faults, and you watch.

Three "machines" (each an agent with its own guardian, workers and member of the store) train `digits_ddp.py`, which
knows nothing of elastic-run. Then, in this order: a worker is killed; a whole machine is killed; a new machine joins
and takes the dead one's member slot in the store; the machine that hosts the job's master is killed. The job continues,
and ends with its accuracy. Nothing is pretended: these are real processes, real signals and a real three-member etcd.
"""

import asyncio
import contextlib
import json
import os
import re
import shutil
import signal
import socket
import sys
import tempfile
import time
from pathlib import Path

SCRIPT = Path(__file__).with_name("digits_ddp.py")
EPOCHS = 45
PATIENCE = 120.0
"""Seconds that any single expectation may take on a slow machine before the demo gives up with a reason."""

MARK = "ELASTIC_RUN_DEMO"


class Machine:
    """One pretended machine: everything that carries its mark, and the etcd member that its agent started."""

    def __init__(self, name: str, folder: Path, endpoints: str, board: "Board") -> None:
        self.name = name
        self.mark = f"{folder}/{name}"
        self.store = folder / f"store-{name}"
        self.summary = folder / f"summary-{name}.json"
        self._board = board
        self.command = [
            sys.executable, "-m", "elastic_run",
            "--nnodes=2:3", "--nproc-per-node=1", f"--rdzv-endpoint={endpoints}", "--rdzv-id=demo",
            "--rdzv-conf=settle=1,scale_up_interval=1", f"--node-name={name}",
            f"--store-dir={self.store}", f"--summary-json={self.summary}",
            str(SCRIPT), f"--checkpoint={folder / 'digits.pt'}", f"--epochs={EPOCHS}", "--step-seconds=0.02",
        ]  # fmt: skip
        self.process: asyncio.subprocess.Process | None = None
        self._reader: asyncio.Task[None] | None = None

    async def start(self) -> None:
        self.process = await asyncio.create_subprocess_exec(
            *self.command,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
            env={**os.environ, MARK: self.mark},
        )
        self._reader = asyncio.create_task(self._read(self.process))

    async def _read(self, process: asyncio.subprocess.Process) -> None:
        assert process.stdout
        async for line in process.stdout:
            self._board.show(self.name, line.decode(errors="replace").rstrip())

    def pids(self) -> list[int]:
        """Every process of this machine: what its agent started, and its member of the store."""
        found: list[int] = []
        for entry in Path("/proc").iterdir():
            if entry.name.isdigit():
                with contextlib.suppress(OSError):
                    environment = (entry / "environ").read_bytes()
                    line = (entry / "cmdline").read_bytes()
                    if f"{MARK}={self.mark}\0".encode() in environment or str(self.store).encode() in line:
                        found.append(int(entry.name))
        return found

    def kill(self) -> int:
        """The whole machine dies at once; returns how many processes that were."""
        pids = self.pids()
        for stop in (signal.SIGSTOP, signal.SIGKILL):  # stopped first, so that none can react to another's death
            for pid in pids:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, stop)
        return len(pids)

    async def ended(self) -> int:
        assert self.process and self._reader
        code = await self.process.wait()
        await self._reader
        return code


class Board:
    """What the machines print, shown as it comes; lets the story wait for a line."""

    def __init__(self) -> None:
        self._began = time.monotonic()
        self._lines: list[tuple[str, str]] = []
        self._news = asyncio.Condition()
        self._tasks: set[asyncio.Task[None]] = set()

    def show(self, name: str, line: str) -> None:
        print(f"{time.monotonic() - self._began:6.1f} s  {name} | {line}", flush=True)
        self._lines.append((name, line))
        task = asyncio.create_task(self._notify())
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def tell(self, text: str) -> None:
        bold, plain = ("\033[1m", "\033[0m") if sys.stdout.isatty() and "NO_COLOR" not in os.environ else ("", "")
        print(f"\n{bold}==== {text}{plain}\n", flush=True)

    def mark(self) -> int:
        """Now, for `line(..., since=mark)`."""
        return len(self._lines)

    async def line(self, pattern: str, what: str, *, since: int = 0, by: str = "") -> tuple[str, re.Match[str]]:
        """Waits for a line of a machine (of `by`, if given) that matches; gives up with `what` as the reason."""
        seen = since
        try:
            async with asyncio.timeout(PATIENCE), self._news:
                while True:
                    for name, line in self._lines[seen:]:
                        found = re.search(pattern, line)
                        if found and by in ("", name):
                            return name, found
                    seen = len(self._lines)
                    await self._news.wait()
        except TimeoutError:
            raise SystemExit(f"the demo gives up: {what} did not happen within {PATIENCE:.0f} s") from None

    async def _notify(self) -> None:
        async with self._news:
            self._news.notify_all()


def free_ports(count: int) -> list[int]:
    """Ports for the store's members, whose companions for the traffic between them (10,000 higher) are free too."""
    found: list[int] = []
    port = 21_000 + os.getpid() % 10_000
    while len(found) < count:
        port += 1
        with socket.socket() as one, socket.socket() as two, contextlib.suppress(OSError):
            one.bind(("127.0.0.1", port))
            two.bind(("127.0.0.1", port + 10_000))
            found.append(port)
    return found


async def story(folder: Path, board: Board, machines: dict[str, Machine]) -> int:
    endpoints = ",".join(f"127.0.0.1:{port}" for port in free_ports(3))

    def machine(name: str) -> Machine:
        machines[name] = Machine(name, folder, endpoints, board)
        return machines[name]

    board.tell("three machines start; the store (etcd) starts with them, a member on each")
    await asyncio.gather(*(machine(name).start() for name in "ABC"))
    master, _ = await board.line(r"the job's master now runs here", "the election of a master")
    await board.line(r"epoch 3/", "training on three machines")

    board.tell("1. a worker is killed")
    since = board.mark()
    victim = next(name for name in "ABC" if name != master)
    worker = next(pid for pid in machines[victim].pids() if SCRIPT.name in _last_words(pid) and _is_worker(pid))
    os.kill(worker, signal.SIGKILL)
    await board.line(r"round \d+: .*SIGKILL", "a new round after the worker's death", since=since)
    await board.line(r"epoch \d+/", "training after the worker's death", since=board.mark())

    dead = next(name for name in "CBA" if name != master)
    board.tell(f"2. machine {dead} is killed: agent, guardian, workers and its member of the store")
    since = board.mark()
    print(f"          ({machines[dead].kill()} processes killed)")
    await machines.pop(dead).ended()
    await board.line(r"round \d+: 3 -> 2 nodes", "a new round without the lost machine", since=since)
    await board.line(r"epoch \d+/", "training on two machines", since=board.mark())

    board.tell(f"3. a new machine D joins, and replaces {dead}'s member of the store")
    since = board.mark()
    await machine("D").start()
    await board.line(r"round \d+: 2 -> 3 nodes", "a new round with the new machine", since=since)
    await board.line(r"epoch \d+/", "training on three machines again", since=board.mark())

    board.tell(f"4. machine {master} is killed: it hosts the job's master")
    since = board.mark()
    print(f"          ({machines[master].kill()} processes killed)")
    await machines.pop(master).ended()
    await board.line(r"round \d+: 3 -> 2 nodes", "a new round under a new master", since=since)

    _, accuracy = await board.line(r"accuracy on .*", "the end of the training", since=since)
    codes = await asyncio.gather(*(survivor.ended() for survivor in machines.values()))
    board.tell("what happened, in words")
    survivor = next(iter(sorted(machines)))
    summary = json.loads(machines[survivor].summary.read_text())
    for change in summary["rounds"]:
        size = (
            f"{change['nodes']} nodes" if change["round"] == 1 else f"{change['previous_nodes']} -> {change['nodes']}"
        )
        down = "" if change["round"] == 1 else f"; downtime {change['down']:.2f} s"
        print(f"  round {change['round']} ({size}): {change['reason']}{down}")
    print(f"  (as machine {survivor} saw it; its workers ran for {summary['seconds_with_workers']:.1f} s)")
    print(f"\n  {accuracy[0]}")
    print(f"  exit codes of the machines that lived to the end: {', '.join(map(str, codes))}")
    if any(codes):
        return 1
    print("\n  The script knew nothing of all this.")
    return 0


def _last_words(pid: int) -> str:
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
    return ""


def _is_worker(pid: int) -> bool:
    with contextlib.suppress(OSError):
        return b"\0LOCAL_RANK=" in Path(f"/proc/{pid}/environ").read_bytes()
    return False


async def main() -> int:
    folder = Path(tempfile.mkdtemp(prefix="elastic-run-demo-"))
    machines: dict[str, Machine] = {}
    try:
        return await story(folder, Board(), machines)
    finally:
        for machine in machines.values():
            machine.kill()
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    sys.exit(asyncio.run(main()))
