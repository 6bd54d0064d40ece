"""TensorFlow's adapter: who is in TF_CONFIG, and which roles a job may have."""

import json
from pathlib import Path
from typing import Any

import pytest

from elastic_run.adapters.contract import Peer, Round, Worker
from elastic_run.adapters.tensorflow.adapter import TensorFlow
from elastic_run.launcher.errors import UsageError
from elastic_run.launcher.options.parse import parse


def config(roles: list[str], rank: int, host: str = "host") -> dict[str, Any]:
    """TF_CONFIG of that worker in a round of workers with these roles."""
    peers = tuple(Peer(one, f"{host}{one}", (2000 + one,), role) for one, role in enumerate(roles))
    size, index = roles.count(roles[rank]), roles[:rank].count(roles[rank])
    worker = Worker(rank, 0, 1, role=roles[rank], role_rank=index, role_world_size=size)
    text = TensorFlow().environment(Round("job", 1, len(roles), 1, "host0", 1, peers=peers), worker, {})["TF_CONFIG"]
    assert text is not None
    return json.loads(text)


@pytest.mark.parametrize("role", ["default", "trainer", "chief"])
def test_workers_of_one_role_are_workers_whatever_it_is_called(role: str) -> None:
    assert config([role, role], 1) == {
        "cluster": {"worker": ["host0:2000", "host1:2001"]},
        "task": {"type": "worker", "index": 1},
    }


def test_an_address_of_ipv6_has_brackets_before_its_port() -> None:
    assert config(["worker"] * 2, 1, "fd00::")["cluster"] == {"worker": ["[fd00::0]:2000", "[fd00::1]:2001"]}


def test_each_role_has_its_tasks_and_an_evaluator_is_in_no_cluster() -> None:
    roles = ["chief", "ps", "worker", "worker", "evaluator"]
    cluster = {"chief": ["host0:2000"], "ps": ["host1:2001"], "worker": ["host2:2002", "host3:2003"]}
    assert config(roles, 3) == {"cluster": cluster, "task": {"type": "worker", "index": 1}}
    assert config(roles, 4) == {"cluster": cluster, "task": {"type": "evaluator", "index": 0}}


def test_two_workers_on_the_chiefs_node_are_refused() -> None:
    with pytest.raises(ValueError, match="chief:nproc=1"):
        config(["chief", "chief", "worker"], 0)


def test_a_worker_without_a_round_has_no_config_of_somebody_else() -> None:
    assert TensorFlow().environment(Round("job", 0, 0, 0, "", 0), Worker(0, 0, 1), {}) == {"TF_CONFIG": None}


def read(folder: Path, roles: str, *more: str) -> dict[str, tuple[int, bool]]:
    """By role, the workers for each node (0: the job's own number) and whether it counts."""
    (folder / "tensorflow.py").touch()  # where the script would find it
    (folder / "train.py").touch()
    options = parse(["--framework=tensorflow", f"--roles={roles}", *more, str(folder / "train.py")], {})
    return {role.name: (role.nproc, role.counts) for role in options.roles}


def test_with_parameter_servers_only_the_chief_counts(tmp_path: Path) -> None:
    assert read(tmp_path, "chief:1,ps:2,worker:2:8,evaluator:0:1") == {
        "chief": (1, True),
        "ps": (0, False),
        "worker": (0, False),
        "evaluator": (0, False),
    }
    assert read(tmp_path, "chief:1,worker:2") == {"chief": (1, True), "worker": (0, True)}


def test_the_users_options_win(tmp_path: Path) -> None:
    assert read(tmp_path, "chief:1,ps:1,worker:2", "--role-options=worker:counts=yes,nproc=4")["worker"] == (4, True)


@pytest.mark.parametrize(
    ("roles", "words"),
    [
        ("chief:1,worker:1,server:1", "no role server: it has chief, worker, ps, evaluator"),
        ("chief:2,worker:1", "one chief, and not up to 2: write chief:1"),
        ("ps:1,worker:1", "need a chief and workers"),
        ("chief:1,ps:1", "need a chief and workers"),
    ],
)
def test_roles_that_tensorflow_cannot_run_with_are_refused(tmp_path: Path, roles: str, words: str) -> None:
    with pytest.raises(UsageError, match=words):
        read(tmp_path, roles)
