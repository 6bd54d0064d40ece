"""The environment of a PyTorch worker, name by name."""

import dataclasses

import pytest

from elastic_run.adapters.contract import Round, Worker
from elastic_run.adapters.environment import Told
from elastic_run.adapters.environment import worker_environment as environment_of
from elastic_run.adapters.registry import adapter

ROUND = Round(
    job="job",
    number=0,
    world_size=8,
    nodes=3,
    master_addr="a.host",
    master_port=23456,
    restart_count=2,
    max_restarts=3,
    signals=("SIGTERM", "SIGINT"),
)
WORKER = Worker(
    rank=5,
    local_rank=1,
    local_world_size=4,
    node_rank=2,
    role="trainer",
    role_rank=6,
    role_world_size=7,
    error_file="/tmp/error.json",
)
ALONE = dataclasses.replace(WORKER, local_world_size=1)


def worker_environment(
    inherited: dict[str, str],
    worker: Worker = WORKER,
    *,
    told: Told | None = None,
    virtual_local_rank: bool = False,
) -> dict[str, str]:
    worker = dataclasses.replace(worker, own_device=virtual_local_rank)
    return environment_of(adapter("torch"), ROUND, worker, inherited, told or Told())


def test_every_name_that_torchrun_sets_is_set() -> None:
    assert worker_environment({}) == {
        "RANK": "5",
        "LOCAL_RANK": "1",
        "WORLD_SIZE": "8",
        "LOCAL_WORLD_SIZE": "4",
        "GROUP_RANK": "2",
        "GROUP_WORLD_SIZE": "3",
        "ROLE_NAME": "trainer",
        "ROLE_RANK": "6",
        "ROLE_WORLD_SIZE": "7",
        "MASTER_ADDR": "a.host",
        "MASTER_PORT": "23456",
        "TORCHELASTIC_RESTART_COUNT": "2",
        "TORCHELASTIC_MAX_RESTARTS": "3",
        "TORCHELASTIC_RUN_ID": "job",
        "TORCHELASTIC_USE_AGENT_STORE": "False",
        "TORCHELASTIC_ERROR_FILE": "/tmp/error.json",
        "TORCHELASTIC_SIGNALS_TO_HANDLE": "SIGTERM,SIGINT",
        "TORCH_NCCL_ASYNC_ERROR_HANDLING": "1",
        "OMP_NUM_THREADS": "1",
    }


def test_the_launchers_own_environment_is_inherited_and_not_changed() -> None:
    inherited = {"PATH": "/bin", "RANK": "99"}
    environment = worker_environment(inherited)
    assert environment["PATH"] == "/bin" and environment["RANK"] == "5"
    assert inherited == {"PATH": "/bin", "RANK": "99"}


def test_a_worker_is_told_of_its_own_agent_only() -> None:
    outer = {"ELASTIC_RUN_AGENT": "@outer"}
    assert worker_environment(outer, told=Told(agent="@ours"))["ELASTIC_RUN_AGENT"] == "@ours"
    assert "ELASTIC_RUN_AGENT" not in worker_environment(outer)


@pytest.mark.parametrize("name", ["OMP_NUM_THREADS", "TORCH_NCCL_ASYNC_ERROR_HANDLING"])
def test_what_the_user_has_chosen_is_kept(name: str) -> None:
    assert worker_environment({name: "7"})[name] == "7"


def test_a_worker_that_is_alone_on_its_node_may_use_every_core() -> None:
    assert "OMP_NUM_THREADS" not in worker_environment({}, ALONE)


def test_devices_are_not_touched_unless_asked() -> None:
    assert "CUDA_VISIBLE_DEVICES" not in worker_environment({})
    assert worker_environment({"CUDA_VISIBLE_DEVICES": "4,5"})["CUDA_VISIBLE_DEVICES"] == "4,5"


@pytest.mark.parametrize(("visible", "device"), [(None, "1"), ("4,5", "5"), ("GPU-aa,GPU-bb", "GPU-bb")])
def test_with_virtual_local_ranks_each_worker_sees_its_own_device_as_the_first(
    visible: str | None, device: str
) -> None:
    inherited = {} if visible is None else {"CUDA_VISIBLE_DEVICES": visible}
    environment = worker_environment(inherited, virtual_local_rank=True)
    assert (environment["LOCAL_RANK"], environment["CUDA_VISIBLE_DEVICES"]) == ("0", device)
    assert environment["RANK"] == "5"


def test_blanks_in_the_list_of_devices_do_not_matter() -> None:
    environment = worker_environment({"CUDA_VISIBLE_DEVICES": "4, 5"}, virtual_local_rank=True)
    assert environment["CUDA_VISIBLE_DEVICES"] == "5"


def test_a_worker_never_gets_a_device_that_is_not_visible() -> None:
    try:
        environment = worker_environment({"CUDA_VISIBLE_DEVICES": "4"}, virtual_local_rank=True)
    except ValueError as error:
        assert "CUDA_VISIBLE_DEVICES" in str(error)
    else:
        assert environment["CUDA_VISIBLE_DEVICES"] in ("", "4")
