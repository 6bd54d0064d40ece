"""The benchmark of many agents has doubles in the place of workers: each has all that an agent asks for."""

import inspect
from typing import Any

import pytest

from benchmarks.scripts import many_agents
from elastic_run.elastic_agent.local_machine import RealMachine
from elastic_run.elastic_agent.processes.guard import Guardian
from elastic_run.elastic_agent.worker_server import WorkerServer
from elastic_run.elastic_agent.workers.ports import Ports
from elastic_run.elastic_agent.workers.process_groups import ProcessGroups
from elastic_run.elastic_agent.workers.worker_processes import Workers


@pytest.mark.parametrize(
    ("double", "real", "unasked"),
    [
        (many_agents.NoMachine(0, False), RealMachine, set[str]()),
        (many_agents.NoMachine(0, False), Workers, {"signal"}),
        (many_agents.NoGuard(), Guardian, {"pid", "watch", "forget", "seconds"}),
        (many_agents.NoPorts(), Ports, set[str]()),
        (many_agents.NoProcessGroups(), ProcessGroups, set[str]()),
        (many_agents.NoWorkerServer(), WorkerServer, set[str]()),
    ],
    ids=lambda each: getattr(each, "__name__", type(each).__name__),
)
def test_a_double_has_what_an_agent_asks_for(double: Any, real: type, unasked: set[str]) -> None:
    wanted = {name for name in vars(real) if not name.startswith("_")} - unasked
    assert wanted, "a class has members"
    for name in wanted:
        found = getattr(double, name)
        if callable(declared := getattr(real, name)):
            asked = inspect.signature(declared).parameters.keys() - {"self"} - unasked
            assert asked <= inspect.signature(found).parameters.keys(), name
