"""The process that is started before the rest of the launcher is imported is the one that the agent wants."""

import os
import select
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from elastic_run.elastic_agent.zygotes.seed import Seed
from elastic_run.launcher.address import Address
from elastic_run.launcher.diagnostics import explain
from elastic_run.launcher.early import begin, worker_settings
from elastic_run.launcher.options.parse import parse
from elastic_run.launcher.run import setup

ENVIRONMENT = {"PATH": "/usr/bin:/bin", "HOME": "/", "ELASTIC_RUN_TAG": "outer", "ELASTIC_RUN_ETCD_PASSWORD": "hidden"}


@contextmanager
def begun(argv: list[str]) -> Iterator[tuple[str, Seed] | None]:
    options = parse(argv, ENVIRONMENT)
    early = begin(options, worker_settings(options, ENVIRONMENT))
    try:
        yield early
    finally:
        if early is not None:
            early[1].close()


@pytest.mark.parametrize(
    "argv",
    [
        ["train.py"],
        ["--nproc-per-node=3", "-m", "train", "--lr=1"],
        ["--standalone", "--nnodes=1", "--role=trainer", "--trace=trace.json", "--node-name=A", "train.py"],
        ["--nnodes=2:4", "--rdzv-endpoint=localhost:1", "--scale-up=commit", "train.py"],
        ["--virtual-local-rank", "--nproc-per-node=2", "--run-path", "train.py"],
    ],
)
def test_the_agent_takes_what_was_begun(argv: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "train.py").write_text("")
    options = parse(argv, ENVIRONMENT)
    with begun(argv) as early:
        assert early is not None
        tag, seed = early
        wanted = setup(options, worker_settings(options, ENVIRONMENT), Address("here", None)).recipe
        assert wanted is not None
        assert seed.serves(wanted.tagged(tag))
        assert not seed.serves(wanted)
        assert seed.recipe.environment["ELASTIC_RUN_TAG"] == f"outer,{tag}"
        assert "ELASTIC_RUN_ETCD_PASSWORD" not in seed.recipe.environment


@pytest.mark.parametrize("argv", [["--start-method=spawn", "train.py"], ["--no-python", sys.executable]])
def test_nothing_is_begun_where_each_worker_is_a_fresh_process(
    argv: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "train.py").write_text("")
    with begun(argv) as early:
        assert early is None


def of_another_name(folder: Path) -> Path:
    """This interpreter, as in another virtual environment of it."""
    link = folder / "python"
    link.symlink_to(sys.executable)
    return link


def of_another_path(folder: Path) -> Path:
    """A wrapper, which keeps from Python what it needs to stop in its start-up."""
    wrapper = folder / "python"
    wrapper.write_text(f'#!/bin/sh\nexec {sys.executable} -E "$@"\n')
    wrapper.chmod(0o755)
    return wrapper


@pytest.mark.parametrize(("make", "warm"), [(of_another_name, True), (of_another_path, False)])
def test_nothing_is_begun_where_another_program_runs_the_workers(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    make: Callable[[Path], Path],
    warm: bool,
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    (tmp_path / "train.py").write_text("open('ran', 'w')\n")
    environment = {**ENVIRONMENT, "PYTHON_EXEC": str(make(tmp_path))}
    options = parse(["--explain-preload", "train.py"], environment)
    early = begin(options, worker_settings(options, environment))
    if early is not None:
        early[1].close()
    assert (early is not None) == warm
    assert explain.main(options) == 0
    said = capsys.readouterr().out
    assert ("is another program than the launcher's" in said) != warm, said
    assert not (tmp_path / "ran").exists()


def test_an_explanation_that_is_interrupted_leaves_no_import_behind(tmp_path: Path) -> None:
    site = tmp_path / "site-packages"
    site.mkdir()
    (site / "hangs.py").write_text("import os, time\nprint(os.getpid(), file=open('began', 'w'))\ntime.sleep(600)\n")
    (tmp_path / "train.py").write_text("import hangs\n")
    os.mkfifo(tmp_path / "began")
    began = os.open(tmp_path / "began", os.O_RDONLY | os.O_NONBLOCK)
    process = subprocess.Popen(
        [sys.executable, "-m", "elastic_run", "--explain-preload", "--preload=hangs", "train.py"],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(site), "XDG_CACHE_HOME": str(tmp_path / "cache")},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    )
    assert select.select([began], [], [], 120)[0], "the import does not begin"
    trial = os.pidfd_open(int(os.read(began, 100)))
    os.close(began)
    process.send_signal(signal.SIGINT)
    said, _ = process.communicate(timeout=120)
    assert process.returncode == 130, said
    try:
        assert select.select([trial], [], [], 120)[0], "it is still there"
    finally:
        os.close(trial)


def test_a_process_that_nobody_adopts_ends_with_its_connection(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "train.py").write_text("raise SystemExit(7)\n")
    with begun(["train.py"]) as early:
        assert early is not None
        seed = early[1]
        seed.connection.close()
        assert seed.process.wait(120) == 0
        assert seed.process.returncode != -signal.SIGKILL
