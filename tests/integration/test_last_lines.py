"""A terminal's last glance: on failure the last 15 lines hold who failed, how, why, one hint, and the log's path."""

import json
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from .cluster import SCRIPTS, Cluster, failure

if TYPE_CHECKING:
    from .conftest import Cluster as Etcd


def run(job: Cluster, how: str) -> dict[str, str]:
    """Has rank 1 fail in that way, for good; the last 15 lines of each node."""
    for node in "AB":
        variables = {"TORCHELASTIC_ERROR_FILE": str(job.directory / f"{node}.json")}
        job.start(node, script=SCRIPTS / "fails.py", args=[how], env=variables, nnodes=2, max_restarts=0)
    assert job.finish() == {"A": 1, "B": 1}
    return {node: job.last_lines(node) for node in "AB"}


def check(end: str, ended: str) -> None:
    """Host, rank, how it ended, one hint, and the path of a log that is there."""
    assert re.search(rf"rank 1 \(local 0, pid \d+\) {ended} on node [AB] \(host 127\.0\.0\.1\)", end), end
    assert len(re.findall(r"\] hint: \S+", end)) == 1, end
    log = re.search(r"\] log: (\S+) on 127\.0\.0\.1", end)
    assert log, end
    assert Path(log[1]).is_file()


def error_of_launcher(job: Cluster, node: str) -> tuple[str, str, int]:
    """What a scheduler finds: the message, the traceback and the exit code."""
    error = json.loads((job.directory / f"{node}.json").read_text())["message"]
    assert int(error["extraInfo"]["timestamp"]) > 0
    return error["message"], error["extraInfo"]["py_callstack"], error["errorCode"]


def test_an_exception(job: Cluster) -> None:
    for node, end in run(job, "exception").items():
        message, trace, code = error_of_launcher(job, node)
        assert (message, code) == ("KeyError: 'learning_rate'", 1)
        assert trace.startswith("Traceback (most recent call last):\n") and trace.rstrip().endswith(message)
        check(end, "exited with code 1")
        for line in ("Traceback (most recent call last):", 'prepare({"epochs": 3})', "KeyError: 'learning_rate'"):
            assert line in end
        assert 'scripts/fails.py", line ' in end


def test_an_exception_with_a_long_traceback_keeps_its_first_and_last_lines(job: Cluster) -> None:
    for end in run(job, "deep exception").values():
        check(end, "exited with code 1")
        assert "Traceback (most recent call last):" in end
        assert 'return table["learning_rate"]' in end
        assert 'globals()["f0"]()' in end, "the script's own outermost frame"
        assert not re.search(r"\.\.\.\n.*\]\s+[~^]+\n", end), "no marks without their line of source"
        assert "KeyError: 'learning_rate'" in end


@pytest.mark.torch
def test_ranks_that_gave_up_waiting_for_a_late_one_are_not_accused(job: Cluster) -> None:
    job.start("A", "B", "C", script=SCRIPTS / "fails.py", args=["late"], nnodes=3, max_restarts=0)
    assert job.finish() == {"A": 1, "B": 1, "C": 1}
    for node in "ABC":
        end = job.last_lines(node)
        assert re.search(
            r"failed: rank.* gave up waiting for another rank .*; ranks? \S*1\S* had not failed by then;", end
        ), end
        assert "the cause is not known; first to fail: rank" in end and "root cause" not in end


@pytest.mark.torch
def test_a_refused_connection_of_the_scripts_own_is_no_lost_rank(job: Cluster) -> None:
    for end in run(job, "refused").values():
        check(end, "exited with code 1")
        assert "lost its connection to another rank" not in end
        assert "root cause: rank 1" in end and "hint: a server that the script calls" in end


def test_a_kill(job: Cluster) -> None:
    for node, end in run(job, "SIGKILL").items():
        message, _, code = error_of_launcher(job, node)
        assert "died by SIGKILL (9)" in message and code == -9
        check(end, r"died by SIGKILL \(9\)")
        assert "elastic-run did not send it" in end


def test_a_crash_in_native_code(job: Cluster) -> None:
    for end in run(job, "SIGSEGV").values():
        check(end, r"died by SIGSEGV \(11\)")
        assert "PYTHONFAULTHANDLER" in end


def test_an_exit_with_a_word_on_stderr(job: Cluster) -> None:
    for end in run(job, "usage").values():
        check(end, "exited with code 2")
        assert "usage: fails.py HOW" in end


def test_an_exit_with_a_word_on_stdout(job: Cluster) -> None:
    for end in run(job, "stdout").values():
        check(end, "exited with code 1")
        assert "last line on stdout: no such data set" in end
        log = re.search(r"\] log: (\S+) on 127\.0\.0\.1", end)
        assert log and "no such data set" in Path(log[1]).read_text()


@pytest.fixture
def memory_limit() -> Iterator[Path]:
    """A control group of 160 MiB: the list of its processes, which takes the pid of whoever enters."""
    root = Path("/sys/fs/cgroup")
    version2 = (root / "cgroup.controllers").exists()
    group = (root if version2 else root / "memory") / f"elastic-run-test-{os.getpid()}"
    limits = {"memory.max": "160M", "memory.swap.max": "0"} if version2 else {"memory.limit_in_bytes": "160M"}
    try:
        group.mkdir()
    except OSError as error:
        pytest.skip(f"NOT TESTED: an out-of-memory kill needs a control group, and none can be made here ({error})")
    try:
        try:
            for name, value in limits.items():
                if name != "memory.swap.max" or (group / name).exists():
                    (group / name).write_text(value)
        except OSError as error:
            pytest.skip(f"NOT TESTED: an out-of-memory kill needs a memory limit, and none can be set ({error})")
        yield group / "cgroup.procs"
    finally:
        group.rmdir()


def test_an_out_of_memory_kill(job: Cluster, memory_limit: Path) -> None:
    # Real: the kernel kills the worker, because the group of the whole node is out of memory.
    enter = ("sh", "-c", f'echo $$ > {memory_limit} && exec "$@"', "sh")
    job.start("A", "B", script=SCRIPTS / "fails.py", args=["memory"], nnodes=2, max_restarts=0, prefix=enter)
    assert job.finish() == {"A": 1, "B": 1}
    for node in "AB":
        end = job.last_lines(node)
        check(end, r"died by SIGKILL \(9\)")
        assert "killed by the kernel: out of memory" in end
        told = "\n".join(job.nodes[node].lines)
        assert re.search(r"killed by the kernel: out of memory \(oom_kill rose by \d+\)", told)
        assert "use less memory per worker, or raise the limit" in end


def test_a_rendezvous_that_times_out(job: Cluster, shared_etcd: "Etcd") -> None:
    job.start("A", nnodes="2:4", conf={"join_timeout": 1})
    assert job.finish() == {"A": 3}
    end = job.last_lines("A")
    assert "only 1 of 2:4 nodes joined within 1 s" in end
    assert re.search(rf"hint: the rendezvous endpoint of this node \(127\.0\.0\.1\) is {shared_etcd.endpoint}", end)
    assert f"--rdzv-id={job.job}" in end


def test_a_store_that_does_not_answer(tmp_path: Path, request: pytest.FixtureRequest) -> None:
    # 192.0.2.0/24 is reserved for documentation: nobody answers there.
    with Cluster(tmp_path / "job", "192.0.2.1:2379", failure(request)) as job:
        job.start("A", nnodes=2, conf={"join_timeout": 1}, local_addr="127.0.0.1")
        assert job.finish() == {"A": 3}
        assert "192.0.2.1:2379" in job.last_lines("A")
