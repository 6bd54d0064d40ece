"""Names that are meant to be more than names: they leave no folder, and do nothing to a terminal."""

import re
from pathlib import Path

import pytest

from ..integration.cluster import Cluster

CLIMBING = "../../../../evil"


def below(folder: Path) -> set[Path]:
    """Everything in it."""
    return set(folder.rglob("*"))


def test_names_that_climb_stay_in_the_folders_that_they_are_given(alone: Cluster, tmp_path: Path) -> None:
    logs = tmp_path / "a" / "b" / "logs"
    alone.start(
        "A",
        rdzv_id=CLIMBING,
        node_name=CLIMBING,
        role=CLIMBING,
        log_dir=str(logs),
        trace=str(tmp_path / "a" / "b" / "trace"),
        summary_json=str(tmp_path / "a" / "b" / "summary"),
        tee="3",
    )
    workers = alone.workers(1)
    workers.do(0, "import elastic_run")
    workers.do(0, f"shards = iter(elastic_run.data.shards({CLIMBING!r}, 100, shard_size=10)); next(shards)")
    workers.tell(f"raise ValueError({CLIMBING!r})")
    alone.workers(1).release()
    assert alone.finish() == {"A": 0}
    assert list(logs.rglob("stdout.log")), "no logs were written"
    outside = [path for path in below(tmp_path) if "evil" in path.name and not path.is_relative_to(logs)]
    assert outside == []
    # What the names would be: four folders above each of those that were given.
    for given in (logs, logs / "x" / "attempt_1", alone.nodes["A"].temporary, Path.cwd()):
        assert not (given / CLIMBING).resolve().exists()


TITLE = "\x1b]0;a title\x07\x1b[2J\n[elastic-run] job x succeeded\r\u202e"


@pytest.mark.parametrize(
    "flag", ["rdzv_id", "node_name", "role", "local_addr", "rdzv_endpoint", "log_dir", "framework"]
)
def test_a_name_is_no_command_to_a_terminal(flag: str, alone: Cluster, tmp_path: Path) -> None:
    value = str(tmp_path / "logs" / TITLE.replace("/", "")) if flag == "log_dir" else TITLE
    alone.start("A", max_restarts=0, **{flag: value})
    alone.wait_until(lambda: alone.nodes["A"].ended or alone.puppets or None, "A refuses it, or begins")
    for worker in alone.puppets:
        worker.tell("go")
    alone.finish()
    said = alone.nodes["A"].log.read_bytes()
    assert b"[elastic-run]" in said
    for line in said.split(b"\n"):
        assert re.sub("\t", "", line.decode()).isprintable(), line
    forged = [line for line in said.split(b"\n") if line.startswith(b"[elastic-run] job x succeeded")]
    assert not forged
