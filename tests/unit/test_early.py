"""The process that is started before the rest of the launcher is imported is the one that the agent wants."""

import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from elastic_run.elastic_agent.seed import Seed
from elastic_run.launcher.early import begin
from elastic_run.launcher.options import parse
from elastic_run.launcher.run import Place, setup

ENVIRONMENT = {"PATH": "/usr/bin:/bin", "HOME": "/", "ELASTIC_RUN_TAG": "outer", "ELASTIC_RUN_ETCD_PASSWORD": "hidden"}


@contextmanager
def begun(argv: list[str]) -> Iterator[tuple[str, Seed] | None]:
    early = begin(parse(argv, ENVIRONMENT), ENVIRONMENT)
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
        wanted = setup(options, Place("here", None), ENVIRONMENT, str(options.output.trace or "")).recipe
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


def test_a_process_that_nobody_adopts_ends_with_its_connection(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "train.py").write_text("raise SystemExit(7)\n")
    with begun(["train.py"]) as early:
        assert early is not None
        seed = early[1]
        seed.connection.close()
        assert seed.process.wait(20) == 0
        assert seed.process.returncode != -signal.SIGKILL
