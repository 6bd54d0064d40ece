"""Where a worker stands: what the launcher's environment says, and a world of one without it."""

import pytest

import elastic_run
from elastic_run.adapters.client.context import (
    JOB,
    RANK_VARIABLES,
    RESTART_COUNT,
    BadEnvironment,
    Context,
    context,
    largest_world,
)
from elastic_run.adapters.contract import Round, Worker
from elastic_run.adapters.environment import Told, worker_environment
from elastic_run.adapters.registry import adapter

ROUND = Round("digits", 7, 8, 2, "a.host", 23456, restart_count=2, max_restarts=3)
WORKER = Worker(5, 1, 4, node_rank=1, role_rank=5, role_world_size=8, error_file="/tmp/error.json")
GIVEN = {"RANK": "5", "WORLD_SIZE": "8", "LOCAL_RANK": "1", "LOCAL_WORLD_SIZE": "4"}


@pytest.mark.parametrize("framework", ["torch", "none"])
def test_a_worker_is_told_all_of_it_by_its_agent(framework: str) -> None:
    environment = worker_environment(adapter(framework), ROUND, WORKER, {}, Told(largest_world=16))
    assert context(environment) == Context(5, 8, 1, 4, 1, 7, 2, "digits")
    assert largest_world(environment) == 16


def test_without_a_launcher_it_is_a_world_of_one() -> None:
    assert context({}) == Context(
        rank=0, world_size=1, local_rank=0, local_world_size=1, node=0, round=0, restart_count=0, job_id=""
    )
    assert largest_world({}) == 0


def test_any_launcher_that_sets_torchruns_variables_will_do() -> None:
    assert context(GIVEN) == Context(5, 8, 1, 4, 1, 0, 0, "")
    assert context({**GIVEN, "GROUP_RANK": "3"}).node == 3


def test_the_package_has_it_under_its_own_name(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in (
        *RANK_VARIABLES,
        "GROUP_RANK",
        "ELASTIC_RUN_ROUND",
        JOB,
        RESTART_COUNT,
        "TORCHELASTIC_RESTART_COUNT",
        "TORCHELASTIC_RUN_ID",
    ):
        monkeypatch.delenv(name, raising=False)
    assert elastic_run.context() == elastic_run.Context(0, 1, 0, 1, 0, 0, 0, "")
    for name, value in GIVEN.items():
        monkeypatch.setenv(name, value)
    assert elastic_run.context().rank == 5


@pytest.mark.parametrize("missing", RANK_VARIABLES)
def test_half_an_environment_is_refused_in_words(missing: str) -> None:
    with pytest.raises(BadEnvironment, match=f"but no {missing}: start the script with a launcher"):
        context({name: value for name, value in GIVEN.items() if name != missing})


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"RANK": "8"}, "RANK=8 is not a rank below WORLD_SIZE=8"),
        ({"LOCAL_RANK": "4"}, "LOCAL_RANK=4 is not a rank below LOCAL_WORLD_SIZE=4"),
        ({"WORLD_SIZE": "0"}, "WORLD_SIZE=0"),
        ({"RANK": "-1"}, "RANK='-1' in the environment is not a number"),
        ({"RANK": ""}, "RANK='' in the environment is not a number"),
        ({"WORLD_SIZE": "four"}, "WORLD_SIZE='four'"),
        ({"ELASTIC_RUN_ROUND": "x"}, "ELASTIC_RUN_ROUND='x'"),
    ],
)
def test_what_cannot_be_is_refused_in_words(change: dict[str, str], words: str) -> None:
    with pytest.raises(BadEnvironment, match=words):
        context({**GIVEN, **change})
