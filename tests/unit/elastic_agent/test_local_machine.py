"""The benchmark of many agents has doubles in the place of workers: each has all that an agent asks for."""

import inspect
from typing import Any

import pytest

from benchmarks.scripts import many_agents
from elastic_run.elastic_agent import local_machine


@pytest.mark.parametrize(
    ("double", "protocol"),
    [
        (many_agents.NoMachine(0, False), local_machine.Machine),
        (many_agents.NoMachine(0, False), local_machine.WorkerSet),
        (many_agents.NoMachine(0, False), local_machine.Reporter),
        (many_agents.NoGuard(), local_machine.Guard),
        (many_agents.NoPorts(), local_machine.PortSet),
        (many_agents.NoProcessGroups(), local_machine.ProcessGroupSet),
        (many_agents.NoWorkerServer(), local_machine.WorkerServerOnMachine),
    ],
    ids=lambda each: getattr(each, "__name__", type(each).__name__),
)
def test_a_double_has_what_an_agent_asks_for(double: Any, protocol: type) -> None:
    wanted = {name for name in (*vars(protocol), *inspect.get_annotations(protocol)) if not name.startswith("_")}
    assert wanted, "a protocol has members"
    for name in wanted:
        found = getattr(double, name)
        if inspect.isfunction(declared := vars(protocol).get(name)):
            asked = list(inspect.signature(declared).parameters)[1:]
            assert [each for each in asked if each not in inspect.signature(found).parameters] == [], name
