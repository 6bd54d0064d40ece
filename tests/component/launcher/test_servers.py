"""How the launcher hands a job's parameter servers to the agent and to the master."""

import os
from pathlib import Path

import pytest

from elastic_run.launcher.options.parse import parse
from elastic_run.launcher.run import beside_master, terms
from elastic_run.master.servers.slot_keeper import SlotKeeper


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "train.py").write_text("")
    monkeypatch.chdir(tmp_path)


def test_a_keeper_of_slots_runs_beside_the_master_of_a_job_with_servers_and_of_no_other() -> None:
    (keeper,) = beside_master(parse(["--servers=2:4", "train.py"], os.environ))
    assert isinstance(keeper, SlotKeeper)
    assert beside_master(parse(["train.py"], os.environ)) == ()


def test_all_nodes_of_a_job_must_say_the_same_of_its_servers() -> None:
    def fingerprint(*words: str) -> str:
        return terms(parse([*words, "train.py"], os.environ)).fingerprint.servers

    assert fingerprint("--servers=2:4") == fingerprint("--servers=2:4", "--ps-replicas=1") == "2:4 replicas=1"
    saved = fingerprint("--servers=1", "--ps-checkpoint=/rows")
    assert saved == "1 replicas=0 checkpoint=/rows every=300" != fingerprint("--servers=1", "--ps-checkpoint=/others")
    assert (fingerprint("--servers=1"), fingerprint()) == ("1 replicas=0", "")
