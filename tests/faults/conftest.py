"""The job of each test, and the count of what was done to all of them."""

import contextlib
import os
import subprocess
from collections.abc import Callable, Generator, Iterator
from pathlib import Path
from typing import TypeVar

import pytest

from ..integration.conftest import Cluster as Etcd
from ..integration.conftest import running
from ..sharing import share_in_folder
from .counted import Counted
from .in_place import JobInPlace
from .job import Job

BROKEN = pytest.StashKey[bool]()
INJECTED = pytest.StashKey[list[str]]()
QUORUM = pytest.StashKey[Etcd]()

J = TypeVar("J", bound=Job)

STEADY = ("--heartbeat-interval=50", "--election-timeout=500")
"""Milliseconds for three members on a machine that has other things to do; its own are 100 and 1000."""


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Notes that the test itself has failed, also where that is expected: then nothing more is asked at its end."""
    item.stash[BROKEN] = item.stash.get(BROKEN, False) or call.excinfo is not None
    return (yield)


def broken(request: pytest.FixtureRequest) -> Callable[[], bool]:
    """For a fixture: answers at its end whether its test has failed."""
    return lambda: request.node.stash.get(BROKEN, False)


@pytest.fixture(scope="session")
def inject(request: pytest.FixtureRequest) -> Callable[[str], None]:
    """Is told of each fault that is done; the end of the run says how many there were."""
    return request.config.stash.setdefault(INJECTED, []).append


@contextlib.contextmanager
def explaining(job: J) -> Iterator[J]:
    """Uses `job`, and prints at its end what was done to it where its test has failed."""
    with job:
        yield job
        if job.has_failed():
            print(job.failed("what the nodes said"))


@pytest.fixture(scope="module")
def quorum(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Etcd:
    """Three members for all tests that do nothing to the store."""
    return share_in_folder(request, QUORUM, lambda: running(Etcd(tmp_path_factory.mktemp("etcd"), 3, STEADY)))


@pytest.fixture
def job(tmp_path: Path, quorum: Etcd, inject: Callable[[str], None], request: pytest.FixtureRequest) -> Iterator[Job]:
    """One job on a store that is not touched."""
    with explaining(Job(tmp_path / "job", broken(request), inject, etcd=quorum)) as made:
        yield made


@pytest.fixture
def etcd(tmp_path: Path) -> Iterator[Etcd]:
    """Three members of the test's own."""
    with running(Etcd(tmp_path / "etcd", 3, STEADY)) as cluster:
        yield cluster


@pytest.fixture
def frail(tmp_path: Path, etcd: Etcd, inject: Callable[[str], None], request: pytest.FixtureRequest) -> Iterator[Job]:
    """One job on a store of its own, to be hurt."""
    with explaining(Job(tmp_path / "job", broken(request), inject, etcd=etcd)) as made:
        yield made


@pytest.fixture
def frail_in_place(
    tmp_path: Path, etcd: Etcd, inject: Callable[[str], None], request: pytest.FixtureRequest
) -> Iterator[JobInPlace]:
    """As `frail`, of workers that keep their process."""
    with explaining(JobInPlace(tmp_path / "job", broken(request), inject, etcd=etcd)) as made:
        yield made


@pytest.fixture
def frail_counted(
    tmp_path: Path, etcd: Etcd, inject: Callable[[str], None], request: pytest.FixtureRequest
) -> Iterator[Counted]:
    """As `frail`, of workers that count."""
    made = Counted(tmp_path / "job", broken(request), inject, etcd=etcd)
    with explaining(made):
        yield made


@pytest.fixture
def counted(
    tmp_path: Path, quorum: Etcd, inject: Callable[[str], None], request: pytest.FixtureRequest
) -> Iterator[Counted]:
    """As `job`, of workers that count."""
    made = Counted(tmp_path / "job", broken(request), inject, etcd=quorum)
    with explaining(made):
        yield made


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    """How many faults this run has injected, and which tests this machine could not run."""
    skipped = [report for report in terminalreporter.getreports("skipped") if report.nodeid.startswith("tests/faults/")]
    injected = config.stash.get(INJECTED, [])
    if injected or skipped:
        terminalreporter.section("faults")
        terminalreporter.line(f"faults: {len(injected)} injected; skipped: {len(skipped)}")
    for report in skipped:
        reason = str(report.longrepr[2]) if isinstance(report.longrepr, tuple) else str(report.longrepr)
        terminalreporter.line(f"  SKIPPED {report.nodeid.rpartition('::')[2]}: {reason.removeprefix('Skipped: ')}")


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A folder with room for 256 KiB and 64 files."""
    if os.geteuid() != 0:
        pytest.skip("no root: no disk can be filled")
    folder = tmp_path / "disk"
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=256k,nr_inodes=64", "tmpfs", str(folder)]
    made = subprocess.run(mount, capture_output=True, text=True, check=False)
    if made.returncode != 0:
        pytest.skip(f"mount is not allowed here: no disk can be filled ({made.stderr.strip()})")
    try:
        yield folder
    finally:
        subprocess.run(["umount", "--lazy", str(folder)], check=True)
