"""What looking at a job costs it: `python -m benchmarks.observation [--seconds=60] [--soak=30]`.

First the processor time of a node's agent, in percent of one core: alone, and with each way to look at the job
(history, live line, dashboard, exporter), for a job whose worker sleeps and for one of eight workers that print and
lease data. Then, for `--soak` minutes, the dashboard and the exporter are asked as fast as they answer, and the memory,
descriptors and threads of both processes are looked at: they must not grow.
"""

import argparse
import contextlib
import json
import os
import re
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
from collections.abc import Callable, Generator, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import psutil

from .arena import free_port

SETTLE = 15.0
"""Seconds after the workers have begun, in which the launcher makes itself ready for faults."""

BOUND = 120.0
"""Seconds for a job to begin."""

SCRAPE, LOOK = 15.0, 2.0
"""Seconds between two scrapes, as Prometheus does it by itself, and between two looks of an open dashboard."""

HANG = 3600
"""Seconds without progress, so that the workers are watched, and none that sleeps is looked at closely."""

SAMPLE = 10.0
"""Seconds between two looks at memory and descriptors."""

SCRIPT = """
import sys, time
lease = sys.argv[1] == "lease"
print("begun", flush=True)
if lease:
    import elastic_run
    for shard in elastic_run.data.shards("records", 10**9, shard_size=1000, commit="ack"):
        time.sleep(1.0)
        print(shard.key, flush=True)
        shard.done()
while True:
    time.sleep(3600)
"""


@dataclass(frozen=True, slots=True)
class Way:
    """One way to look at a job.

    Attributes:
        flags: of the job.
        terminal: the job has one, with a live line.
        looked: somebody has the dashboard open.
        scraped: an exporter is asked as Prometheus asks it.
    """

    name: str
    flags: tuple[str, ...] = ()
    terminal: bool = False
    looked: bool = False
    scraped: bool = False


WAYS = (
    Way("nothing"),
    Way("history", ("--history=history",)),
    Way("live line", terminal=True),
    Way("dashboard, nobody looks", ("--dashboard",)),
    Way("dashboard, open", ("--dashboard",), looked=True),
    Way("exporter", scraped=True),
    Way("all of them", ("--history=history", "--dashboard"), True, True, True),
)


class Job:
    """A job of one node in a store of its own, and those who look at it."""

    def __init__(self, folder: Path, workers: int, way: Way) -> None:
        self.folder = folder
        self.port = free_port()
        home = folder / "home"
        home.mkdir()
        (folder / "train.py").write_text(SCRIPT)
        foreign = ("PET_", "SLURM_", "TORCHELASTIC_")
        self._environment = {name: value for name, value in os.environ.items() if not name.startswith(foreign)}
        self._environment |= {"HOME": str(home), "XDG_CACHE_HOME": str(home), "TERM": "xterm"}
        command = [
            "--nnodes=1:2",
            f"--nproc-per-node={workers}",
            "--rdzv-id=looked-at",
            f"--hang-timeout={HANG}",
            *way.flags,
        ]
        self._text = b""
        self._ended = threading.Event()
        master, slave = os.openpty() if way.terminal else os.pipe()
        self.agent = self._start(
            [*command, f"--rdzv-endpoint=127.0.0.1:{self.port}", "train.py", "lease" if workers > 1 else "sleep"], slave
        )
        os.close(slave)
        self._reader = threading.Thread(target=self._read, args=(master,), daemon=True)
        self._reader.start()
        self.exporter: subprocess.Popen[bytes] | None = None
        self.metrics = f"127.0.0.1:{free_port()}"
        self.until(lambda: self._text.count(b"begun") >= workers)
        if way.scraped:
            reach = f"--rdzv-endpoint=127.0.0.1:{self.port}"
            self.exporter = self._start(["exporter", reach, f"--listen={self.metrics}"], subprocess.DEVNULL)
        self._threads = [
            *([self._each(LOOK, self.look)] if way.looked else []),
            *([self._each(SCRAPE, self.scrape)] if way.scraped else []),
        ]

    def _start(self, words: Sequence[str], out: int) -> subprocess.Popen[bytes]:
        return subprocess.Popen(
            [sys.executable, "-m", "elastic_run", *words],
            cwd=self.folder,
            env=self._environment,
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=out,
            start_new_session=True,
        )

    def _read(self, descriptor: int) -> None:
        with contextlib.suppress(OSError):  # the terminal's last user has gone
            while data := os.read(descriptor, 65536):
                self._text = (self._text + data)[-200_000:] if len(self._text) > 400_000 else self._text + data

    def _each(self, seconds: float, work: Callable[[], object]) -> threading.Thread:
        def run() -> None:
            while not self._ended.wait(seconds):
                with contextlib.suppress(OSError):
                    work()

        thread = threading.Thread(target=run, daemon=True)
        thread.start()
        return thread

    def until(self, condition: Callable[[], bool]) -> None:
        """Waits until it holds."""
        end = time.monotonic() + BOUND
        while not condition():
            if time.monotonic() > end or self.agent.poll() is not None:
                raise SystemExit(f"the job has not begun:\n{self._text.decode(errors='replace')[-2000:]}")
            time.sleep(0.1)

    def scrape(self) -> bytes:
        """What the exporter says now."""
        with urllib.request.urlopen(f"http://{self.metrics}/metrics", timeout=30) as answer:
            return answer.read()

    def look(self, path: str = "part") -> bytes:
        """What the dashboard says now."""
        found = re.search(rb"dashboard: (http://[^/]+/)\?token=(\S+)", self._text)
        if found is None:
            raise OSError("no dashboard is served yet")
        request = urllib.request.Request(found[1].decode() + path)
        request.add_header("Authorization", f"Bearer {found[2].decode()}")
        with urllib.request.urlopen(request, timeout=60) as answer:
            return answer.read()

    def close(self) -> None:
        """Ends all of it."""
        self._ended.set()
        for process in filter(None, (self.exporter, self.agent)):
            process.send_signal(signal.SIGTERM)
        for process in filter(None, (self.exporter, self.agent)):
            try:
                process.wait(60)
            except subprocess.TimeoutExpired:
                process.kill()


@contextlib.contextmanager
def running(workers: int, way: Way) -> Generator[Job]:
    """A job, and those who look at it."""
    folder = Path(tempfile.mkdtemp(prefix="observation-"))
    job = Job(folder, workers, way)
    try:
        yield job
    finally:
        job.close()
        shutil.rmtree(folder, ignore_errors=True)


def share(workers: int, way: Way, seconds: float) -> tuple[float, float | None]:
    """Percent of a core that the agent uses, and that an exporter does; None where there is none."""
    with running(workers, way) as job:
        time.sleep(SETTLE)
        those = [job.agent, *([job.exporter] if job.exporter else [])]
        before, begun = [_used(each.pid) for each in those], time.monotonic()
        time.sleep(seconds)
        lasted = time.monotonic() - begun
        found = [100 * (_used(each.pid) - was) / lasted for each, was in zip(those, before, strict=True)]
        return found[0], found[1] if len(found) > 1 else None


def _used(pid: int) -> float:
    times = psutil.Process(pid).cpu_times()
    return times.user + times.system


@dataclass(frozen=True, slots=True)
class Size:
    """Of one process: MiB of memory that nobody else has, descriptors, threads."""

    minutes: float
    memory: float
    files: int
    threads: int

    @classmethod
    def of(cls, pid: int, minutes: float) -> "Size":
        """As it is now."""
        process = psutil.Process(pid)
        memory = process.memory_full_info().uss / 2**20
        return cls(round(minutes, 2), round(memory, 2), process.num_fds(), process.num_threads())


def soak(minutes: float, workers: int = 8) -> dict[str, object]:
    """Dashboard and exporter are asked as fast as they answer."""
    way = Way("soak", ("--history=history", "--dashboard"), scraped=True)
    counts = {"part": 0, "rank": 0, "metrics": 0}
    sizes: dict[str, list[Size]] = {"agent": [], "exporter": []}
    with running(workers, way) as job:
        assert job.exporter is not None
        ended = threading.Event()

        def ask(name: str, work: Callable[[int], object], pause: float) -> None:
            while not ended.wait(pause):
                with contextlib.suppress(OSError):
                    work(counts[name])
                    counts[name] += 1

        def rank(count: int) -> bytes:
            return job.look(f"rank?number={count % workers}")

        def part(_: int) -> bytes:
            return job.look()

        def metrics(_: int) -> bytes:
            return job.scrape()

        asking = (
            threading.Thread(target=ask, args=("part", part, 0.05)),
            threading.Thread(target=ask, args=("rank", rank, 2.0)),
            threading.Thread(target=ask, args=("metrics", metrics, 0.05)),
        )
        time.sleep(SETTLE)
        for thread in asking:
            thread.start()
        begun = time.monotonic()
        while (passed := (time.monotonic() - begun) / 60) < minutes:
            for name, process in (("agent", job.agent), ("exporter", job.exporter)):
                sizes[name].append(Size.of(process.pid, passed))
            time.sleep(SAMPLE)
        ended.set()
        for thread in asking:
            thread.join(90)
    return {"minutes": minutes, "asked": counts, **{name: _grown(found) for name, found in sizes.items()}}


def _grown(sizes: Sequence[Size]) -> dict[str, object]:
    """The second and the last quarter of the time: what grows by each request is larger in the last."""
    quarter = max(1, len(sizes) // 4)
    early, late = sizes[quarter : 2 * quarter] or sizes, sizes[-quarter:]
    return {
        "memory_mib": [_median(early, lambda one: one.memory), _median(late, lambda one: one.memory)],
        "descriptors": [_median(early, lambda one: one.files), _median(late, lambda one: one.files)],
        "threads": [_median(early, lambda one: one.threads), _median(late, lambda one: one.threads)],
    }


def _median(sizes: Sequence[Size], read: Callable[[Size], float]) -> float:
    return round(statistics.median(map(read, sizes)), 2)


def shares(seconds: float) -> Iterator[dict[str, object]]:
    """One row for each way and job."""
    for workers in (1, 8):
        for way in WAYS:
            agent, exporter = share(workers, way, seconds)
            yield {
                "workers": workers,
                "way": way.name,
                "agent_percent": round(agent, 3),
                **({"exporter_percent": round(exporter, 3)} if exporter is not None else {}),
            }


def main() -> None:
    """Prints one line of JSON for each figure."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--seconds", type=float, default=60.0, help="of each measurement; 0: none")
    parser.add_argument("--soak", type=float, default=30.0, metavar="MINUTES", help="0: none")
    wanted = parser.parse_args()
    for row in shares(wanted.seconds) if wanted.seconds else ():
        print(json.dumps(row), flush=True)
    if wanted.soak:
        print(json.dumps(soak(wanted.soak)), flush=True)


if __name__ == "__main__":
    main()
