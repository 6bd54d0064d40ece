"""What parameter servers do, as `elastic-run status` tells it of real jobs, and who waits for one that hangs."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest

from elastic_run.master.machine.parameter_servers import ServerStatus
from elastic_run.master.status import Status
from elastic_run.rendezvous.wire.values import decode

from .cluster import Cluster

SCRIPT = Path(__file__).with_name("scripts") / "servers_waited_for.py"

SECONDS = 240.0
"""For what is waited for, on a busy machine: loops are compiled for the first time."""


class SeenJob:
    """One of two workers and two servers, on one node."""

    def __init__(self, folder: Path) -> None:
        self.id, self.output = f"seen-{os.getpid()}", folder / "output"
        command = [sys.executable, "-m", "elastic_run", f"--rdzv-id={self.id}", "--nproc-per-node=2", "--servers=2"]
        command += ["--rdzv-conf=lease_ttl=120", "--hang-timeout=4"]  # a server that hangs is left to be looked at
        with self.output.open("wb") as output:
            self.process = subprocess.Popen([*command, str(SCRIPT)], cwd=folder, stdout=output, stderr=output)

    def status(self) -> Status | None:
        command = [sys.executable, "-m", "elastic_run", "status", f"--rdzv-id={self.id}", "--json"]
        done = subprocess.run(command, capture_output=True, timeout=SECONDS, check=False)
        return decode(Status, done.stdout) if done.returncode == 0 else None

    def await_status(self, holds: Callable[[Status], object]) -> Status:
        until = time.monotonic() + SECONDS
        while time.monotonic() < until and self.process.poll() is None:
            if (found := self.status()) and holds(found):
                return found
            time.sleep(0.3)
        raise AssertionError(self.output.read_text())

    def servers(self) -> list[psutil.Process]:
        found = psutil.Process(self.process.pid).children()
        return [each for each in found if any("adapters.servers.server" in word for word in each.cmdline())]


@pytest.fixture(scope="module")
def seen_job(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SeenJob]:
    folder = tmp_path_factory.mktemp("seen")
    job = SeenJob(folder)
    try:
        yield job
        (folder / "stop").touch()
        assert job.process.wait(SECONDS) == 0, job.output.read_text()
    finally:
        job.process.kill()
        job.process.wait()


@pytest.mark.xdist_group("servers seen")
@pytest.mark.timeout(2 * SECONDS)
def test_the_status_lists_the_servers_with_what_they_have_and_do(seen_job: SeenJob) -> None:
    def is_known(each: ServerStatus) -> bool:
        told = each.pulls and each.pushes and each.pull_seconds and each.push_seconds
        return bool(told) and each.report.state == "answers"

    found = seen_job.await_status(lambda one: all(map(is_known, one.parameter_servers.servers)) and one.datasets)
    servers = [each.report for each in found.parameter_servers.servers]
    assert [each.number for each in servers] == [0, 1]
    assert [(each.slots, each.backups, each.bare) for each in servers] == [(512, 512, 0)] * 2
    assert all(each.resident > 10 << 20 for each in servers)
    (table,) = found.parameter_servers.sum_tables()
    assert table.table == "counts" and 0 < table.rows < table.bytes
    # The hundred records of a shard are 25 ids.
    assert table.given == pytest.approx(4 * table.pulled, rel=0.3) and table.pushed > 0
    assert found.parameter_servers.waits == ()


@pytest.mark.xdist_group("servers seen")
@pytest.mark.timeout(3 * SECONDS)
def test_who_waits_for_a_server_that_hangs_is_told_and_no_rank_is_accused(seen_job: SeenJob) -> None:
    seen_job.await_status(lambda one: one.parameter_servers.servers and one.datasets and one.datasets[0].done)
    hung = seen_job.servers()[1]
    os.kill(hung.pid, signal.SIGSTOP)
    try:
        found = seen_job.await_status(lambda one: len(one.parameter_servers.waits) == 2)
        (stopped,) = (each.report for each in found.parameter_servers.servers if each.report.state == "stopped")
        for wait in found.parameter_servers.waits:
            assert stopped.number in wait.servers and wait.seconds >= 1.0
        found = seen_job.await_status(lambda one: one.diagnosis)
        (diagnosis,) = found.diagnosis
        finding = diagnosis.finding
        assert (finding.kind, finding.rank, finding.server) == ("parameter-server", None, stopped.number)
        assert finding.strength == "certain" and finding.waiting == (0, 1)
        assert "is stopped by a signal" in diagnosis.words and "servers_waited_for.py" in diagnosis.words
    finally:
        os.kill(hung.pid, signal.SIGCONT)
    seen_job.await_status(lambda one: not one.parameter_servers.waits and not one.diagnosis)


def test_the_servers_of_all_nodes_are_told_to_whichever_leads(job: Cluster) -> None:
    job.start("A", "B", nnodes="2", servers="2", script=SCRIPT)
    job.wait_anywhere("pushed")
    command = [sys.executable, "-m", "elastic_run", "status", f"--rdzv-endpoint={job.typed_endpoint}", "--json"]
    found, until = tuple[ServerStatus, ...](), time.monotonic() + SECONDS
    while time.monotonic() < until:
        done = subprocess.run(command, capture_output=True, timeout=SECONDS, check=False)
        found = decode(Status, done.stdout).parameter_servers.servers if done.returncode == 0 else ()
        if len(found) == 2 and all(each.report.measure.pushes for each in found):
            break
        time.sleep(0.3)
    assert sorted(each.node for each in found) == ["A", "B"]
    assert [(each.report.number, each.report.slots) for each in found] == [(0, 512), (1, 512)]
    (job.directory / "stop").touch()
    assert job.finish() == {"A": 0, "B": 0}
