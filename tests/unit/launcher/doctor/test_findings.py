"""What the doctor makes of the facts of a machine."""

import dataclasses

import pytest

from elastic_run.launcher.doctor.command import WIDTH
from elastic_run.launcher.doctor.findings import (
    MIB,
    Finding,
    Machine,
    Python,
    Store,
    of_deadlines,
    of_machine,
    of_python,
    of_stacks,
    of_store,
)
from elastic_run.launcher.settings import Timing

MACHINE = Machine(
    host="host1",
    platform="Linux 6.1 on x86_64, Python 3.11.7",
    trouble="",
    cores=8.0,
    memory=65536 * MIB,
    shared_memory=32768 * MIB,
    files=1048576,
    processes=None,
    folder="/tmp",
    free=50000 * MIB,
    addresses=("192.0.2.7",),
    address="192.0.2.7",
)
PYTHON = Python("python", "3.11.7", torch="2.13.0", cuda="13.0", nccl="2.28.9", gpus=8, collective=(("nccl", 600.0),))
STORE = Store("host1:2379", "3.5.9", "", here=True, binary="", warning=None, read=0.001, write=0.004)


def findings(machine: Machine = MACHINE, store: Store = STORE, python: Python = PYTHON) -> list[Finding]:
    times = of_deadlines(Timing(), 30, python)
    return [*of_machine(machine), *of_store(store), *of_python(python), of_stacks(""), *times]


def worse(found: list[Finding]) -> list[tuple[str, str]]:
    return [(each.grade, each.subject) for each in found if each.grade != "ok"]


def test_a_good_machine_has_no_problem() -> None:
    found = findings()
    assert worse(found) == []
    assert max(len(each.subject) for each in found) == WIDTH, "a column of lines that are printed one by one"


@pytest.mark.parametrize(
    ("changes", "grade", "subject"),
    [
        ({"trouble": "elastic-run needs Linux"}, "problem", "platform"),
        ({"shared_memory": 64 * MIB}, "note", "shared memory"),
        ({"shared_memory": None}, "note", "shared memory"),
        ({"files": 256}, "note", "open files"),
        ({"free": "Read-only file system"}, "problem", "folder"),
        ({"free": 10 * MIB}, "problem", "folder"),
        ({"addresses": ()}, "note", "host name"),
    ],
)
def test_what_a_machine_lacks_is_found(changes: dict[str, object], grade: str, subject: str) -> None:
    found = findings(machine=dataclasses.replace(MACHINE, **changes))  # pyright: ignore[reportArgumentType]
    assert worse(found) == [(grade, subject)]


@pytest.mark.parametrize(
    ("changes", "worse_than_ok"),
    [
        ({"version": None, "problem": "refused", "binary": "etcd 3.4.23 (/usr/bin/etcd)"}, []),
        ({"version": None, "problem": "refused"}, [("problem", "store")]),
        ({"version": None, "problem": "refused", "here": False}, [("problem", "store")]),
        ({"version": None, "binary": "etcd 3.5.1", "warning": "3.5.1 can lose data"}, [("note", "store")]),
        ({"write": 0.5}, [("note", "store")]),
        ({"read": 0.2, "write": 0.5}, [("note", "store"), ("note", "store")]),
    ],
)
def test_a_store_is_judged_by_whether_it_answers_and_how_quickly(
    changes: dict[str, object], worse_than_ok: list[tuple[str, str]]
) -> None:
    assert worse(findings(store=dataclasses.replace(STORE, **changes))) == worse_than_ok  # pyright: ignore[reportArgumentType]


def test_a_python_that_does_not_work_is_a_problem_and_one_without_torch_is_none() -> None:
    assert worse(findings(python=Python("python", problem="no such file"))) == [("problem", "workers' Python")]
    assert worse(findings(python=Python("python", "3.12.1"))) == [("note", "torch")]


def test_two_deadlines_that_contradict_each_other_are_named() -> None:
    grace = 30.0, "Slurm's KillWait"
    (found,) = (each for each in of_deadlines(Timing(), 30, PYTHON, grace) if each.grade == "problem")
    assert "lower --shutdown-timeout" in found.text and "Slurm's KillWait" in found.text
    assert worse([*of_deadlines(Timing(), 20, PYTHON, grace)]) == []
    assert worse([*of_deadlines(Timing(lease_ttl=600), 30, PYTHON)]) == [("note", "deadlines")]


def test_stacks_that_cannot_be_read_are_a_note_that_says_what_follows() -> None:
    found = of_stacks("py-spy is not installed (pip install py-spy)")
    assert (found.grade, found.subject) == ("note", "Python stacks")
    assert "is named only by what the kernel proves" in found.text
