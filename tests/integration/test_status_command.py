"""`elastic-run status` and `doctor` beside real jobs and stores, and `replay` of what real masters recorded."""

import asyncio
import contextlib
import fcntl
import json
import os
import re
import select
import socket
import subprocess
import sys
import termios
import time
from collections.abc import Generator
from pathlib import Path

import pytest

from elastic_run.elastic_agent.diagnosis.stacks import py_spy
from elastic_run.launcher.bounded_server import ROOM
from elastic_run.launcher.doctor import facts
from elastic_run.launcher.settings import Credentials, Trust
from elastic_run.rendezvous.identity.secret import own_folder, own_secret
from elastic_run.rendezvous.store.endpoint import Endpoint
from elastic_run.rendezvous.store.etcd.etcd_store import EtcdStore

from .cluster import Cluster
from .commands import asked, run, scraped
from .recorded_history import recorded


@contextlib.contextmanager
def exporter(*words: str) -> Generator[str]:
    """Runs until it is told to end; where it listens."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        address = f"127.0.0.1:{free.getsockname()[1]}"
    command = [sys.executable, "-m", "elastic_run", "exporter", f"--listen={address}", *words]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None and address in process.stdout.readline()
            yield address
        finally:
            process.terminate()
        assert process.wait(60) == 0


def test_a_job_says_how_it_is_also_while_another_node_leads_it(job: Cluster) -> None:
    job.start("A", "B", nnodes="1:2")
    job.workers(2)
    text = asked(job).stdout
    assert f"job {job.job}: trains in round 1 for " in text and "so far: no incidents" in text
    job.kill_machine(job.master())
    second = job.workers(1)
    told = json.loads(asked(job, "--json").stdout)
    assert told["round"] == 2 and told["world_size"] == 1 and told["tally"]["lost"] == 1
    (node,) = told["nodes"]
    assert node["first_rank"] == 0 and node["node"] == second[0].node
    second.release()
    job.finish()
    over = asked(job)
    assert over.returncode == 1 and f"there is no job {job.job!r} in the store" in over.stderr, over


def test_it_is_watched_until_it_is_over(job: Cluster) -> None:
    job.start("A", nnodes="1:2")
    workers = job.workers(1)
    command = [sys.executable, "-m", "elastic_run", "status", "--watch", f"--rdzv-endpoint={job.typed_endpoint}"]
    with subprocess.Popen([*command, f"--rdzv-id={job.job}"], stdout=subprocess.PIPE, text=True) as watching:
        assert watching.stdout is not None
        first = watching.stdout.readline()
        assert first.startswith(f"job {job.job}: trains in round 1"), first
        workers.release()
        assert watching.wait(60) == 0
    assert job.finish() == {"A": 0}


def test_a_store_that_is_not_there_is_told_in_one_sentence() -> None:
    own_secret(own_folder(os.environ))
    done = run("status", "--rdzv-endpoint=127.0.0.1:1")
    assert done.returncode == 1
    (line,) = done.stderr.splitlines()
    assert line.startswith("[elastic-run] nothing listens at 127.0.0.1:1: ")


def test_a_job_is_found_on_its_machine_without_its_store(alone: Cluster) -> None:
    alone.start("A", rdzv_id=alone.job)
    workers = alone.workers(1)
    done = run("status", f"--rdzv-id={alone.job}", "--json")
    assert done.returncode == 0, done
    told = json.loads(done.stdout)
    assert (told["job"], told["state"], told["world_size"]) == (alone.job, "open", 1)
    with exporter(f"--rdzv-id={alone.job}") as address:
        found = scraped(address)
        assert {found[f'elastic_run_{each}{{job="{alone.job}"}}'] for each in ("job_up", "world_size")} == {1}
        assert "elastic_run_store_up" not in found
    command = [sys.executable, "-m", "elastic_run", "status", "--watch", f"--rdzv-id={alone.job}"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as watching:
        assert watching.stdout is not None
        assert watching.stdout.readline().startswith(f"job {alone.job}: trains in round 1")
        workers.release()
        assert watching.wait(60) == 0
    assert alone.finish() == {"A": 0}
    over = run("status", f"--rdzv-id={alone.job}")
    assert over.returncode == 1 and "no such job of yours runs on this machine" in over.stderr, over


def test_a_history_is_decided_again_and_a_changed_one_tells_where(tmp_path: Path) -> None:
    lines = recorded(tmp_path)
    (whole,) = tmp_path.glob("*.history")
    assert re.fullmatch(r".+\.\d+\.history", whole.name) and "FILE.N.history" in run("replay").stderr
    same = run("replay", str(whole))
    assert same.returncode == 0 and "every decision is made again" in same.stdout, same
    changed = tmp_path / "changed.history"
    changed.write_bytes(b"\n".join(lines).replace(b'"max_restarts":3', b'"max_restarts":0') + b"\n")
    other = run("replay", str(changed))
    assert other.returncode == 1 and f"{changed}:" in other.stdout and 'now: {"kind":"Wait"' in other.stdout


def test_what_is_no_history_is_refused(tmp_path: Path) -> None:
    text = tmp_path / "train.py"
    text.write_text("print(1)\n")
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    for word in (str(text), str(fifo), str(tmp_path), str(tmp_path / "missing"), "--help-me"):
        done = run("replay", word)
        assert done.returncode == 2 and len(done.stderr.splitlines()) == 1, done


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (b"", b""),
        (b'"max_nodes":1', b'"max_nodes":' + b"[" * 100_000),
        (b'"node_unit":1', b'"node_unit":0'),
        (b'"kind":"Registered","at":', b'"kind":"Registered","at":-1e308,"was":'),
    ],
    ids=["nested", "a nested value", "a division by 0", "a time without end"],
)
def test_a_history_that_no_master_has_written_is_refused_in_one_sentence(
    old: bytes, new: bytes, tmp_path: Path
) -> None:
    text = b"\n".join(recorded(tmp_path)) + b"\n" if old else b"[" * 100_000 + b"\n"
    assert old in text
    hostile = tmp_path / "hostile\x1b[2J.history"
    hostile.write_bytes(text.replace(old, new) if old else text)
    done = run("replay", str(hostile))
    assert done.returncode == 2 and len(done.stderr.splitlines()) == 1 and "Traceback" not in done.stderr, done
    assert "\x1b" not in done.stdout + done.stderr


def test_a_name_of_a_history_is_no_command_to_a_terminal(tmp_path: Path) -> None:
    hostile = tmp_path / "hostile\x1b[2J.history"
    hostile.write_bytes(b"\n".join(recorded(tmp_path)) + b"\n" + b"not whole")
    done = run("replay", str(hostile))
    assert done.returncode == 0 and done.stdout.count("\\x1b[2J") == 2 and "\x1b" not in done.stdout


def test_the_doctor_examines_a_machine_with_a_store_and_leaves_nothing_in_it(job: Cluster) -> None:
    assert job.endpoint is not None
    done = run("doctor", f"--rdzv-endpoint={job.typed_endpoint}", "--json")
    found = json.loads(done.stdout)
    assert done.returncode == (1 if any(each["grade"] == "problem" for each in found) else 0), done
    of_store = [each["text"] for each in found if each["subject"] == "store"]
    assert [re.sub(r"\d.*", "", text) for text in of_store] == ["etcd ", "a read takes ", "a write takes "]

    async def left() -> int:
        store = EtcdStore((job.endpoint or "").split(","))
        try:
            return len((await store.list("/elastic-run-doctor/", keys_only=True)).items)
        finally:
            await store.close()

    assert asyncio.run(left()) == 0


def test_the_doctor_says_that_a_store_does_not_answer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    done = run("doctor", "--rdzv-endpoint=127.0.0.1:1", cwd=tmp_path)
    assert "nothing answers at 127.0.0.1:1" in done.stdout and not done.stderr, done
    assert run("doctor", "--nnodes=2").returncode == 2
    # Nobody is dialled for STORE_SECONDS where the connection is refused: no client is even made.
    monkeypatch.delattr(facts, "etcd_at")
    for endpoint in (Endpoint("127.0.0.1", 1), Endpoint("127.0.0.1", 1, tls=True)):
        closed = asyncio.run(facts.store((endpoint,), Credentials(), Trust()))
        assert (closed.here, closed.version, closed.problem) == (not endpoint.tls, None, "nothing listens there")


def test_the_doctor_prints_each_finding_as_it_is_found(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "elastic_run", "doctor", "--rdzv-endpoint=127.0.0.1:1"]
    slow = tmp_path / "python"
    os.mkfifo(tmp_path / "seen")
    slow.write_text(f"#!/bin/sh\nread line < '{tmp_path}/seen' && : > '{tmp_path}/told'\n")
    slow.chmod(0o755)
    environment = {**os.environ, "PYTHON_EXEC": str(slow)}
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment
    ) as doctor:
        assert doctor.stdout is not None and doctor.stderr is not None
        lines = [doctor.stdout.readline()]  # all of them at the end, if it waits for the workers' Python first
        while " store " not in lines[-1]:
            assert lines[-1], doctor.stderr.read()
            lines.append(doctor.stdout.readline())
        assert lines[0].startswith("ok       platform         Linux ")
        doctor.stdout.close()  # as `head` does; nobody reads the rest, which is no error
        seen = os.open(tmp_path / "seen", os.O_RDWR)  # waits for no reader
        os.write(seen, b"\n")
        assert doctor.stderr.read() == "" and doctor.wait(60) == 1  # such a Python is a problem
        os.close(seen)
    assert (tmp_path / "told").exists(), "the workers' Python was given up before a line was printed"


def test_the_exporter_serves_every_job_of_the_store_until_it_is_told_to_end(job: Cluster) -> None:
    job.start("A", "B", nnodes="1:2")
    job.workers(2)
    with exporter(f"--rdzv-endpoint={job.typed_endpoint}") as address:
        found = scraped(address)
        assert found["elastic_run_store_up"] == 1 and found[f'elastic_run_job_up{{job="{job.job}"}}'] == 1
        assert found[f'elastic_run_world_size{{job="{job.job}"}}'] == 2
        job.kill_machine(job.master())
        second = job.workers(1)
        found = scraped(address)
        assert found[f'elastic_run_world_size{{job="{job.job}"}}'] == 1
        assert found[f'elastic_run_lost_nodes_total{{job="{job.job}"}}'] == 1
        second.release()
        job.finish()
        assert not any(job.job in name for name in scraped(address))


def test_an_exporter_whose_store_is_gone_says_so_and_goes_on() -> None:
    own_secret(own_folder(os.environ))
    with exporter("--rdzv-endpoint=127.0.0.1:1") as address:
        assert scraped(address) == {"elastic_run_store_up": 0} == scraped(address)


@pytest.mark.parametrize("begin", [b"", b"GET / HTTP/1.0\r\nX: "], ids=["silent", "slow"])
def test_connections_without_a_request_keep_nobody_from_an_exporters_metrics(begin: bytes) -> None:
    own_secret(own_folder(os.environ))
    with exporter("--rdzv-endpoint=127.0.0.1:1") as address, contextlib.ExitStack() as strangers:
        for _ in range(3 * ROOM):
            host, _, port = address.rpartition(":")
            slow = strangers.enter_context(socket.create_connection((host, int(port)), 30))
            with contextlib.suppress(ConnectionError):
                slow.sendall(begin)
        assert scraped(address) == {"elastic_run_store_up": 0}


class Terminal:
    """A command on a terminal of its own, and what it has drawn on it, without the terminal's own words."""

    SECONDS = 120.0

    def __init__(self, *command: str) -> None:
        self._ours, theirs = os.openpty()
        termios.tcsetwinsize(theirs, (30, 100))
        environment = {**os.environ, "TERM": "xterm"}
        self.process = subprocess.Popen(
            command, stdin=theirs, stdout=theirs, stderr=theirs, env=environment, preexec_fn=self._lead
        )
        os.close(theirs)
        self._drawn = b""

    @staticmethod
    def _lead() -> None:
        """The command leads a session, and the terminal is its own, as a shell's job has it."""
        os.setsid()
        fcntl.ioctl(0, termios.TIOCSCTTY, 0)

    def type(self, keys: str) -> None:
        """Presses them; what was drawn before is forgotten."""
        self._drawn = b""
        os.write(self._ours, keys.encode())

    def wait_for(self, pattern: str) -> str:
        """Waits until that is drawn; returns all that was drawn since the last key."""
        until = time.monotonic() + self.SECONDS
        while not re.search(
            f"(?s){pattern}", text := re.sub(r"\x1b\[[?\d;]*\w", "", self._drawn.decode(errors="replace"))
        ):
            ready, _, _ = select.select([self._ours], [], [], max(0.0, until - time.monotonic()))
            assert ready, f"waited for {pattern!r} in vain:\n{text}"
            data = b""
            with contextlib.suppress(OSError):
                data = os.read(self._ours, 65536)
            assert data, f"it has ended without {pattern!r}:\n{text}"
            self._drawn += data
        return text

    def modes(self) -> tuple[bool, bool]:
        """Whether the terminal echoes, and gives whole lines."""
        local = termios.tcgetattr(self._ours)[3]
        return bool(local & termios.ECHO), bool(local & termios.ICANON)

    def close(self) -> None:
        self.process.kill()
        self.process.wait()
        os.close(self._ours)


def test_on_a_terminal_keys_show_a_ranks_last_output_and_where_it_is(job: Cluster) -> None:
    job.start("A", "B", nnodes="2", nproc_per_node="2")
    workers = job.workers(4)
    workers.do(3, "print('rank three is at step', 41 + 1, flush=True)")
    words = ("status", "--watch", f"--rdzv-endpoint={job.typed_endpoint}", f"--rdzv-id={job.job}")
    with contextlib.closing(Terminal(sys.executable, "-m", "elastic_run", *words)) as seen:
        seen.wait_for(r"trains in round 1.*q quit")
        assert seen.modes() == (False, False)
        seen.type("3\r")
        seen.wait_for(f"rank 3 on node {workers[3].node}, the last output")
        seen.wait_for("rank three is at step 42")
        workers.do(3, "print('and has gone on', flush=True)")
        seen.wait_for("and has gone on")  # without another key
        seen.type("s")
        text = seen.wait_for(rf"process {workers[3].pid}\b.*open files")
        seen.wait_for(r"system call \w+ for a socket")
        assert "where it is" in text
        seen.wait_for("obey  .*puppet.py:" if py_spy() else "no Python stack: py-spy is not installed")
        seen.type("n")
        seen.wait_for("rank 3 on node")  # there is no rank 4
        seen.type("p")
        seen.wait_for(rf"rank 2 on node {workers[2].node}, where it is")
        seen.wait_for(rf"process {workers[2].pid}\b")
        seen.type("\x1b")
        seen.wait_for("so far: no incidents")
        workers.release()
        assert job.finish() == {"A": 0, "B": 0}
        seen.wait_for(f"job {job.job} is over|succeeded")
        assert seen.process.wait(60) == 0
        assert seen.modes() == (True, True)


def test_on_a_terminal_a_key_ends_the_watch_and_a_job_that_is_not_there_gives_the_terminal_back(job: Cluster) -> None:
    job.start("A", nnodes="1:2")
    workers = job.workers(1)
    command = (sys.executable, "-m", "elastic_run", "status", "--watch", f"--rdzv-endpoint={job.typed_endpoint}")
    with contextlib.closing(Terminal(*command, f"--rdzv-id={job.job}")) as seen:
        seen.wait_for("trains in round 1")
        seen.type("q")
        seen.wait_for("trains in round 1")  # what stays
        assert seen.process.wait(60) == 0 and seen.modes() == (True, True)
    with contextlib.closing(Terminal(*command, "--rdzv-id=another")) as seen:
        seen.wait_for("there is no job 'another' in the store")
        assert seen.process.wait(60) == 1 and seen.modes() == (True, True)
    workers.release()
    job.finish()


def test_steps_that_a_script_commits_are_told_a_second(job: Cluster) -> None:
    job.start("A", "B", nnodes="2")
    workers = job.workers(2)
    assert json.loads(asked(job, "--json").stdout)["steps"] is None
    stop = job.directory / "stop"
    workers[0].tell(
        "import os, time; from elastic_run.adapters.client.steps import Steps; steps = Steps(); "
        "[(steps.committed(), strings.say('a step'), time.sleep(0.05)) for _ in "
        f"iter(lambda: os.path.exists({str(stop)!r}), True)]"
    )
    rate = job.wait_until(lambda: json.loads(asked(job, "--json").stdout)["steps"], "steps a second are known")
    assert rate > 0
    assert re.search(r"steps: [\d.]+ (steps/s|s a step)", asked(job).stdout)
    stop.touch()
    job.wait_until(lambda: workers[0].did or None, "rank 0 has stopped")
    workers.release()
    assert job.finish() == {"A": 0, "B": 0}
