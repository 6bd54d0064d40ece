"""Runs a script in every way that a worker may be started, and writes down all that can be seen of it from outside.

The ways: *plain* is what a user has without a launcher, `python -u SCRIPT` once for each rank, with the variables set
by hand. *spawn* and *fork* are the launcher's. All use the same paths, one after the other.

In each way the script runs twice in one job, because a forked worker of the second round finds more imported than one
of the first, whose imports were not known yet. Scripts that would succeed fail when all is done where $FAILS_FIRST is
set and it is the first time; the others fail by themselves.

What is seen is text, so that a difference is a difference of lines. Only what no two processes share is masked.
"""

import contextlib
import itertools
import json
import os
import re
import select
import shutil
import signal
import subprocess
import sys
import time
import zipfile
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

from elastic_run.adapters.contract import Round, Worker
from elastic_run.adapters.environment import Told, worker_environment
from elastic_run.adapters.registry import adapter

from .conftest import free_ports

DEADLINE = 120.0
"""Seconds for one run. Generous, because the machine may be busy."""

SCRIPTS = Path(__file__).with_name("awkward")

WAYS = ("plain", "spawn", "fork")

JOB = "awkward"

MARK = "AWKWARD"
"""In the environment of everything that a run starts; its value is the run's folder."""

OTHERS = ("PYTHON", "PYTEST", "PET_", "SLURM_", "OMP_", "TORCH", "ELASTIC_RUN", "XDG_", "GRPC_")
"""Variables of whoever runs the tests that begin so are not handed on."""

HANDED_ON = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT)

MASKS = (
    (re.compile(r"(?<=/tmp/tmp)[a-z0-9_]{8}\b"), "........"),
    (re.compile(r"\b0x[0-9a-f]{4,}\b"), "0x..."),
    (re.compile(r"\b([IWE]0000 00:00:)[0-9.]+ +[0-9]+ "), r"\1... "),
    (
        re.compile(
            r"^(env|environ) (MASTER_PORT|TORCHELASTIC_ERROR_FILE|ELASTIC_RUN_AGENT|ELASTIC_RUN_TAG)=.*$", re.MULTILINE
        ),
        r"\1 \2=...",
    ),
)
"""What any two processes have of their own: addresses, names of temporary files, times and pids in lines of TensorFlow,
what belongs to one launch."""

OWN = re.compile(r"\[elastic-run\] |Executing <")
"""The launcher's own lines; the other ones are asyncio's, where the environment asks for its debug mode."""

SPOILED = "was imported ahead, before the script changed"
"""In the launcher's line about an import that was made too early."""

LAUNCHED = "launched: "
"""Lines of a script that begin so are about having a launcher at all: `plain` is not asked for them."""


@dataclass(frozen=True)
class Case:
    """One script and the surroundings that it runs in.

    Attributes:
        command: the script and its arguments, as typed after the launcher's flags; relative to the folder of the run,
                in which the scripts are `awkward/...`; {run} is that folder.
        flags: of the launcher; the last stands directly before the command.
        workers: how many.
        env: what is added to the environment; None takes a variable out.
        files: text by name, written into the folder of the run before.
        archive: text by name, of which `program.pyz` is made.
        links: symbolic links, by name.
        folder: where in the folder of the run it is started.
        through: a command that runs the launcher, or the script where there is none, and changes what it finds.
        stdin: what is in the pipe that is its standard input; None: /dev/null.
        ends: the exit code, or the signal that ends it. Of several workers: of all of them.
        says: a pattern that its output must have, so that a script that fails everywhere is not taken for one that
            works everywhere.
        plain: the command without a launcher, where it does not follow from the flags; empty: there is none.
        draws: names of `private/<rank>.json` whose values must differ between all ranks and all ways.
        fits: no forked worker may find what was imported ahead to be wrong.
        aborts: torch aborts now and then while such a script exits, without a launcher as well: then it runs again.
    """

    command: tuple[str, ...]
    flags: tuple[str, ...] = ()
    workers: int = 1
    env: Mapping[str, str | None] = field(default_factory=dict[str, str | None])
    files: Mapping[str, str] = field(default_factory=dict[str, str])
    archive: Mapping[str, str] = field(default_factory=dict[str, str])
    links: Mapping[str, str] = field(default_factory=dict[str, str])
    folder: str = "."
    through: tuple[str, ...] = ()
    stdin: str | None = None
    ends: int | signal.Signals = 0
    says: str = ""
    plain: tuple[str, ...] | None = None
    draws: tuple[str, ...] = ()
    fits: bool = False
    aborts: bool = False


@dataclass(frozen=True)
class Seen:
    """What one way showed.

    Attributes:
        ended: exit code or signal.
        lines: all of it, masked, each with where it came from.
        drawn: the values of `Case.draws`, by rank.
        problems: what must not be in any way: a process that is left, a line of a worker among the launcher's own.
    """

    ended: int | signal.Signals
    lines: tuple[str, ...]
    drawn: tuple[Mapping[str, object], ...] = ()
    problems: tuple[str, ...] = ()

    def without_launcher(self) -> tuple[str, ...]:
        """The lines that a script without a launcher has as well."""
        return tuple(line for line in self.lines if LAUNCHED not in line)


@dataclass(frozen=True)
class _Streams:
    """What one worker wrote, and how it ended where that is known of each."""

    stdout: bytes
    stderr: bytes
    ended: int | signal.Signals = 0


class Runs:
    """All ways of one case, in a folder of its own."""

    def __init__(self, folder: Path, case: Case) -> None:
        self.case = case
        self.folder = folder
        self.run = folder / "run"
        self.cwd = self.run / case.folder
        self.command = tuple(word.replace("{run}", str(self.run)) for word in case.command)
        self.logs = folder / "logs"
        self.summary = folder / "summary.json"

    def all(self) -> dict[str, Seen]:
        """Every way after the other."""
        return {way: self.once(way) for way in WAYS if way != "plain" or self.case.plain != ()}

    def once(self, way: str) -> Seen:
        """One of the ways; again, where torch has aborted."""
        for _ in range(5 if self.case.aborts else 0):
            seen = self._once(way)
            if seen.ended == self.case.ends:
                return seen
        return self._once(way)

    # -- the ways -------------------------------------------------------------------------------------------------

    def _once(self, way: str) -> Seen:
        self._prepare()
        return self._plain() if way == "plain" else self._launched(way)

    def _plain(self) -> Seen:
        attempts: list[list[_Streams]] = []
        for restart in (0, 1):
            port = free_ports(1)[0]
            ranks = range(self.case.workers)
            with ThreadPoolExecutor(self.case.workers) as each:
                ends = list(each.map(self._alone, ranks, itertools.repeat(restart), itertools.repeat(port)))
            attempts.append(ends)
            if not any(end.ended for end in ends):
                break
        return self._seen(attempts, next((end.ended for end in attempts[-1] if end.ended), 0))

    def _alone(self, rank: int, restart: int, port: int) -> _Streams:
        case = self.case
        words = case.plain or (sys.executable, "-u", *(["-m"] if "-m" in case.flags else []), *self.command)
        round = Round(
            job=JOB,
            number=1 + restart,
            world_size=case.workers,
            nodes=1,
            master_addr="127.0.0.1",
            master_port=port,
            restart_count=restart,
            max_restarts=1,
            signals=tuple(number.name for number in HANDED_ON),
        )
        worker = Worker(
            rank=rank,
            local_rank=rank,
            local_world_size=case.workers,
            role_rank=rank,
            role_world_size=case.workers,
            error_file=str(self.folder / f"error{rank}.json"),
        )
        told = Told(largest_world=case.workers, agent=str(self.folder / "no agent"))
        env = worker_environment(adapter("torch"), round, worker, self._environment(), told)
        env["ELASTIC_RUN_TAG"] = "none"
        code, out, err = self._call(words, env)
        return _Streams(out, err, signal.Signals(-code) if code < 0 else code)

    def _launched(self, way: str) -> Seen:
        case = self.case
        flags = (
            "--standalone",
            f"--nproc-per-node={case.workers}",
            f"--rdzv-id={JOB}",
            "--max-restarts=1",
            "--same-failure-limit=0",  # so that it runs twice, however it ends
            f"--log-dir={self.logs}",
            "--redirects=3",
            f"--summary-json={self.summary}",
            f"--start-method={way}",
        )
        words = (sys.executable, "-m", "elastic_run", *flags, *case.flags, *self.command)
        code, out, err = self._call(words, self._environment())
        said = err.decode().splitlines()
        problems = [f"process {pid} is left: {command}" for pid, command in self._left()]
        problems += [f"on the launcher's stdout: {line}" for line in out.decode().splitlines()]
        problems += [f"on the launcher's stderr: {line}" for line in said if not OWN.match(line)]
        problems += [line for line in said if case.fits and SPOILED in line]
        if not self.summary.exists():
            return Seen(code, tuple(said), (), (*problems, f"there is no summary; exit code {code}"))
        summary = json.loads(self.summary.read_text())
        # Of several that fail at once, any may be the first.
        notes = [f"round {each['round']}: {each['reason']}" for each in summary["rounds"] if case.workers == 1]
        ended: int | signal.Signals = 0
        if summary["root_cause"] and not summary["root_cause"]["exit"]:
            problems.append(summary["reason"])
        elif summary["root_cause"]:
            exit_ = summary["root_cause"]["exit"]
            ended = signal.Signals(exit_["signal"]) if exit_["code"] is None else exit_["code"]
            notes += [f"explained: {line}" for line in (exit_["message"], *exit_["traceback"].splitlines())]
        elif code:
            problems.append(f"the launcher ended with {code}: {summary['reason']}")
        folders = sorted(self.logs.glob(f"{JOB}_*/attempt_*"), key=lambda path: int(path.name.partition("_")[2]))
        attempts = [
            [
                _Streams(
                    (folder / str(rank) / "stdout.log").read_bytes(), (folder / str(rank) / "stderr.log").read_bytes()
                )
                for rank in range(case.workers)
            ]
            for folder in folders
        ]
        return self._seen(attempts, ended, [LAUNCHED + self._masked(note) for note in notes], problems)

    def _call(self, words: Sequence[str], env: Mapping[str, str]) -> tuple[int, bytes, bytes]:
        process = subprocess.Popen(
            (*self.case.through, *words),
            cwd=self.cwd,
            env=env,
            stdin=subprocess.DEVNULL if self.case.stdin is None else subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
        )
        typed = None if self.case.stdin is None else self.case.stdin.encode()
        try:
            out, err = process.communicate(typed, DEADLINE)
        except subprocess.TimeoutExpired as late:
            for pid, _ in self._left():
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            process.kill()
            out, err = process.communicate()
            raise AssertionError(f"{words} did not end in {DEADLINE:g} s:\n{out.decode()}\n{err.decode()}") from late
        return process.returncode, out, err

    # -- the surroundings -----------------------------------------------------------------------------------------

    def _prepare(self) -> None:
        """Everything as it was at first."""
        for path in (self.run, self.logs, self.folder / "tmp", self.folder / "cache"):
            shutil.rmtree(path, ignore_errors=True)
        self.summary.unlink(missing_ok=True)
        (self.folder / "tmp").mkdir(parents=True)
        shutil.copytree(SCRIPTS, self.run / "awkward", ignore=shutil.ignore_patterns("__pycache__", ".*", "*.toml"))
        self.cwd.mkdir(parents=True, exist_ok=True)
        for name, text in self.case.files.items():
            (self.run / name).parent.mkdir(parents=True, exist_ok=True)
            (self.run / name).write_text(text)
            os.utime(self.run / name, (1, 1))  # a cache that looks at times must see the same file again
        if self.case.archive:
            with zipfile.ZipFile(self.run / "program.pyz", "w") as archive:
                for name, text in self.case.archive.items():
                    archive.writestr(zipfile.ZipInfo(name), text)  # without today's time
        for name, target in self.case.links.items():
            (self.run / name).symlink_to(target)
        self.before = {path: path.lstat().st_mtime_ns for path in self.run.rglob("*") if not path.is_dir()}

    def _environment(self) -> dict[str, str]:
        env = {name: value for name, value in os.environ.items() if not name.startswith(OTHERS)}
        env |= {"TMPDIR": str(self.folder / "tmp"), "XDG_CACHE_HOME": str(self.folder / "cache")}
        env |= {MARK: str(self.folder)} | {"FAILS_FIRST": "1"}
        for name, value in self.case.env.items():
            env.pop(name, None)
            if value is not None:
                env[name] = value.replace("{run}", str(self.run))
        return env

    # -- what is seen ---------------------------------------------------------------------------------------------

    def _seen(
        self,
        attempts: Sequence[Sequence[_Streams]],
        ended: int | signal.Signals,
        notes: Sequence[str] = (),
        problems: Sequence[str] = (),
    ) -> Seen:
        lines = [*notes, f"ended: {ended}"]
        for number, attempt in enumerate(attempts, 1):
            if self.case.workers > 1 and number < len(attempts):
                continue  # the first one that failed has ended the others in the middle of their work
            for rank, streams in enumerate(attempt):
                for name, data in (("stdout", streams.stdout), ("stderr", streams.stderr)):
                    text = self._masked(data.decode(errors="surrogateescape"))
                    lines += [f"{number}, rank {rank} {name}: {line!r}" for line in text.splitlines(keepends=True)]
        lines += self._files()
        drawn = [json.loads(path.read_text()) for path in sorted(self.run.glob("private/*.json"))]
        return Seen(ended, tuple(lines), tuple(drawn), tuple(problems))

    def _files(self) -> list[str]:
        """Everything new or changed, in the folder of the run and among temporary files."""
        lines: list[str] = []
        for top in (self.run, self.folder / "tmp"):
            for path in sorted(top.rglob("*")):
                name = f"file {path.relative_to(self.folder)}"
                if path.is_relative_to(self.run / "private"):
                    continue
                if path.is_dir():
                    lines.append(f"{name}/")
                elif path.lstat().st_mtime_ns != self.before.get(path):
                    mode = path.lstat().st_mode
                    text = "" if path.suffix in (".pyc", ".db", ".gz", ".zip") else path.read_bytes().decode("latin-1")
                    lines.append(f"{name} ({mode:o}): {self._masked(text)!r}")
        return lines

    def _masked(self, text: str) -> str:
        for pattern, instead in MASKS:
            text = pattern.sub(instead, text)
        return text

    def _left(self) -> list[tuple[int, str]]:
        """Living processes that carry this run's mark; those that are just ending get a moment."""
        until = time.monotonic() + 30
        while (found := self._marked()) and time.monotonic() < until:
            for pid, _ in found:
                with contextlib.suppress(OSError):
                    handle = os.pidfd_open(pid)
                    try:
                        wait_readable(handle, until - time.monotonic())
                    finally:
                        os.close(handle)
        return found

    def _marked(self) -> list[tuple[int, str]]:
        mark = f"{MARK}={self.folder}".encode()
        found: list[tuple[int, str]] = []
        for entry in Path("/proc").iterdir():
            if entry.name.isdigit():
                with contextlib.suppress(OSError):
                    if mark in (entry / "environ").read_bytes().split(b"\0"):
                        command = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
                        found.append((int(entry.name), command))
        return found


def wait_readable(descriptor: int, seconds: float) -> None:
    """Waits until `descriptor` can be read, at most so long."""
    poll = select.poll()
    poll.register(descriptor, select.POLLIN)
    poll.poll(max(seconds, 0) * 1000)


def in_parallel(cases: Mapping[str, Case], folder: Path) -> Callable[[str], dict[str, Seen]]:
    """Starts all cases, two at once for each CPU; the answer waits for one of them by its name.

    A job that fails waits for a second until no other failure can be its cause.
    """
    pool = ThreadPoolExecutor(2 * (os.cpu_count() or 2))
    runs = {name: pool.submit(Runs(folder / f"case{n}", case).all) for n, (name, case) in enumerate(cases.items())}
    pool.shutdown(wait=False)
    return lambda name: runs[name].result()
