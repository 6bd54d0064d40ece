"""What torchrun gives a worker, and what we give it: one script under both launchers, and every difference is named."""

import json
import os
import socket
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from .cluster import SCRIPTS, Cluster, embedded_ports

if TYPE_CHECKING:
    from .conftest import Cluster as Etcd

pytestmark = [pytest.mark.torch, pytest.mark.xdist_group("torch-contract")]

DEADLINE = 120.0

DIFFERENT = {
    "MASTER_ADDR": "torchrun's static rendezvous names the host, ours an address",
    "MASTER_PORT": "any free port",
    "TORCHELASTIC_ERROR_FILE": "each launcher has a folder of its own",
    "TORCHELASTIC_USE_AGENT_STORE": "we host no torch store: rank 0 does, and with this False it knows",
    "TORCHELASTIC_RUN_ID": "without --rdzv-id torchrun says none or a random one, we derive one",
    "TORCHELASTIC_MAX_RESTARTS": "without --max-restarts torchrun allows none, we allow 3",
}
"""Variables of torchrun that we set as well, to something else."""

OURS = {
    "ELASTIC_RUN_TAG": "by which the agent finds whatever its workers have started",
    "ELASTIC_RUN_ROUND": "the number of the round",
    "ELASTIC_RUN_AGENT": "where a worker can ask its agent",
    "ELASTIC_RUN_MAX_WORLD_SIZE": "how many workers the job may come to have",
}
"""Variables that torchrun does not set."""


@dataclass(frozen=True)
class Case:
    """One way to call both launchers.

    Attributes:
        flags: of the launcher; the last stands directly before the command.
        nodes: how many launchers run at once, on this one machine.
        command: what they run.
        workers: how many there are in all.
        given: which of DIFFERENT are equal here, because the flags say what they are.
    """

    flags: tuple[str, ...]
    nodes: int = 1
    command: tuple[str, ...] = (str(SCRIPTS / "describe_me.py"),)
    workers: int = 2
    given: frozenset[str] = frozenset()


CASES = {
    "two workers": Case(("--standalone", "--nproc-per-node=2")),
    "two nodes, a role and restarts": Case(
        ("--nnodes=2", "--rdzv-id=one-id", "--role=trainer", "--max-restarts=2"),
        nodes=2,
        given=frozenset({"TORCHELASTIC_RUN_ID", "TORCHELASTIC_MAX_RESTARTS"}),
    ),
    "a module": Case(("--standalone", "-m"), command=("folder.describe_me",), workers=1),
    "no python": Case(
        ("--standalone", "--no-python"), command=(sys.executable, str(SCRIPTS / "describe_me.py")), workers=1
    ),
    "run path": Case(("--standalone", "--run-path"), workers=1),
}

ARGUMENTS = ("--epochs", "1", "--nnodes=9", "a b", "", "-x", "${local_rank}")
"""The script's own, some of which look like the launcher's; torchrun fills in the last one, and so must we."""

Described = list[dict[str, Any]]  # Any: JSON


class Both:
    """Runs every case under both launchers, all torchruns at once: most of their time is the import of torch."""

    def __init__(self, folder: Path, store: str) -> None:
        self.folder = folder
        self.stdin = folder / "stdin"
        self.stdin.write_text("typed\n")
        (folder / "folder").mkdir()
        (folder / "folder" / "describe_me.py").write_text((SCRIPTS / "describe_me.py").read_text())
        self.endpoints = {"torchrun": f"127.0.0.1:{embedded_ports(1)[0]}", "elastic-run": f"http://{store}"}
        started = {
            (launcher, name): self._start(launcher, name, case)
            for launcher in ("torchrun", "elastic-run")
            for name, case in CASES.items()
        }
        self.results = {key: self._result(*key, processes) for key, processes in started.items()}

    def _start(self, launcher: str, name: str, case: Case) -> "list[subprocess.Popen[bytes]]":
        described = self.folder / f"{launcher} {name}"
        described.mkdir()
        environment = {key: value for key, value in os.environ.items() if not key.startswith(("PET_", "SLURM_"))}
        environment |= {
            "DESCRIBE_ME": str(described),
            "TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1",
            "TMPDIR": str(self.folder),
        }
        environment.pop("OMP_NUM_THREADS", None)
        where = (f"--rdzv-endpoint={self.endpoints[launcher]}", "--rdzv-backend=c10d") if case.nodes > 1 else ()
        module = "torch.distributed.run" if launcher == "torchrun" else "elastic_run"
        flags, last = case.flags[:-1], case.flags[-1]
        words = [sys.executable, "-m", module, *flags, *where, last, *case.command, *ARGUMENTS]
        processes: list[subprocess.Popen[bytes]] = []
        for node in range(case.nodes):
            log = (described / f"launcher{node}.log").open("wb")
            own = [f"--node-name=node{node}"] if launcher == "elastic-run" and case.nodes > 1 else []
            with log, self.stdin.open() as stdin:
                processes.append(
                    subprocess.Popen(
                        [*words[:3], *own, *words[3:]],
                        cwd=self.folder,
                        env=environment,
                        stdin=stdin,
                        stdout=log,
                        stderr=subprocess.STDOUT,
                    )
                )
        return processes

    def _result(self, launcher: str, name: str, processes: "list[subprocess.Popen[bytes]]") -> list[str] | str:
        described = self.folder / f"{launcher} {name}"
        try:
            codes = [process.wait(DEADLINE) for process in processes]
        finally:
            for process in processes:
                process.kill()
                process.wait()
        if any(codes):
            return "\n".join(log.read_text() for log in described.glob("*.log"))
        return [(described / f"{rank}.json").read_text() for rank in range(CASES[name].workers)]

    def __call__(self, name: str) -> tuple[Described, Described]:
        """What torchrun gave to each worker, by rank, and what elastic-run did."""
        theirs, ours = self.results["torchrun", name], self.results["elastic-run", name]
        assert not isinstance(theirs, str), f"torchrun failed: {theirs}"
        assert not isinstance(ours, str), f"elastic-run failed: {ours}"
        return [json.loads(worker) for worker in theirs], [json.loads(worker) for worker in ours]


@pytest.fixture(scope="module")
def both(tmp_path_factory: pytest.TempPathFactory, shared_etcd: "Etcd") -> Both:
    """All cases, run once."""
    return Both(tmp_path_factory.mktemp("both"), shared_etcd.endpoint)


@pytest.mark.parametrize("name", CASES)
def test_workers_have_the_same_variables(both: Both, name: str) -> None:
    for theirs, ours in zip(*both(name), strict=True):
        assert set(ours["environment"]) - set(theirs["environment"]) == set(OURS)
        assert set(theirs["environment"]) <= set(ours["environment"])


@pytest.mark.parametrize("name", CASES)
def test_variables_have_the_same_values_but_for_those_that_are_named(both: Both, name: str) -> None:
    for theirs, ours in zip(*both(name), strict=True):
        variables: Mapping[str, str] = theirs["environment"]
        skipped = {*DIFFERENT, "DESCRIBE_ME"} - CASES[name].given
        assert {
            key: (value, ours["environment"].get(key))
            for key, value in variables.items()
            if key not in skipped and ours["environment"].get(key) != value
        } == {}


@pytest.mark.parametrize("name", CASES)
def test_the_named_differences_are_what_they_are_said_to_be(both: Both, name: str) -> None:
    theirs, ours = both(name)
    assert {worker["environment"]["TORCHELASTIC_USE_AGENT_STORE"] for worker in theirs} <= {"True", "False"}
    assert {worker["environment"]["TORCHELASTIC_USE_AGENT_STORE"] for worker in ours} == {"False"}
    assert len({worker["environment"]["MASTER_ADDR"] for worker in ours}) == 1
    assert len({worker["environment"]["MASTER_PORT"] for worker in ours}) == 1
    assert len({worker["environment"]["TORCHELASTIC_RUN_ID"] for worker in ours}) == 1
    assert len({worker["environment"]["TORCHELASTIC_ERROR_FILE"] for worker in ours}) == len(ours)
    for worker in ours:
        socket.getaddrinfo(worker["environment"]["MASTER_ADDR"], int(worker["environment"]["MASTER_PORT"]))
        theirs_file, ours_file = (
            Path(each[int(worker["environment"]["RANK"])]["environment"]["TORCHELASTIC_ERROR_FILE"])
            for each in (theirs, ours)
        )
        assert ours_file.name == theirs_file.name and ours_file.parent.name == theirs_file.parent.name


@pytest.mark.parametrize("name", CASES)
def test_the_script_finds_itself_in_the_same_place(both: Both, name: str) -> None:
    for theirs, ours in zip(*both(name), strict=True):
        del theirs["environment"], ours["environment"]
        assert ours == theirs


def test_stdin_is_the_launchers_own(both: Both) -> None:
    typed = both.stdin.stat()
    for worker in both("two workers")[1]:
        assert worker["stdin"] == [typed.st_dev, typed.st_ino]


def test_torch_knows_that_it_is_launched_and_its_error_files_are_read(alone: Cluster) -> None:
    script, files = SCRIPTS / "recorded_error.py", [alone.directory / f"{name}.json" for name in ("ours", "torchruns")]
    ours, torchruns = ({"TORCHELASTIC_ERROR_FILE": str(file)} for file in files)
    alone.start("A", script=script, env=ours, standalone="", max_restarts=0)
    words = [sys.executable, "-m", "torch.distributed.run", "--standalone", str(script)]
    assert subprocess.run(words, env=os.environ | torchruns, capture_output=True, timeout=DEADLINE).returncode == 1
    assert alone.finish(DEADLINE) == {"A": 1}
    assert "rank 0] launched by torchelastic: True" in alone.log("A")
    end = alone.last_lines("A")
    assert "exited with code 9" in end
    assert "ValueError: kept only in the error file" in end
    assert "in main" in end, "the traceback is in the error file, too"
    errors = [json.loads(file.read_text()) for file in files]
    for error in errors:
        assert error["message"]["extraInfo"].pop("timestamp").isdecimal()
    assert errors[0] == errors[1], "what a scheduler reads of either launcher is the same"
