"""Process groups of gloo: what becomes of those that are left."""

import os
import queue
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from elastic_run.adapters.client.rounds import Rounds
from elastic_run.adapters.torch import process_group
from elastic_run.adapters.torch.process_group import ElasticProcessGroup

from ....integration.conftest import free_ports

pytestmark = pytest.mark.torch

PATIENCE = 60.0

WAITS_FOR_A_PEER = """
import sys
import torch
import torch.distributed as dist
from elastic_run.adapters.torch import process_group
from elastic_run.adapters.client.rounds import Rounds

process_group.LINGER_SECONDS = float(sys.argv[1])
members = Rounds()
elastic = process_group.ElasticProcessGroup(members, None, None)
elastic.form(members.context)
if members.context.rank == 0:
    dist.all_reduce(torch.ones(1), async_op=True)
    elastic.drop(broken=True)
    elastic.tidy()
    print("goes on", flush=True)
else:
    sys.stdin.readline()
"""


class Group:
    """A group that says which thread ends it."""

    def __init__(self) -> None:
        self.ends: queue.Queue[threading.Thread] = queue.Queue()

    def __del__(self) -> None:
        self.ends.put(threading.current_thread())


@pytest.fixture
def elastic(monkeypatch: pytest.MonkeyPatch) -> ElasticProcessGroup:
    monkeypatch.setattr(process_group, "LINGER_SECONDS", 0.0)
    return ElasticProcessGroup(Rounds({}), None, None)


def test_a_group_is_ended_by_a_thread_of_its_own(elastic: ElasticProcessGroup) -> None:
    group = Group()
    ends = group.ends
    elastic._old.append((0.0, [group]))
    del group
    elastic.tidy()
    assert not elastic._old
    assert ends.get(timeout=PATIENCE) is not threading.main_thread()


def test_a_group_that_somebody_has_is_kept(elastic: ElasticProcessGroup) -> None:
    group = Group()
    elastic._old.append((0.0, [group]))
    elastic.tidy()
    assert [kept for _, kept in elastic._old] == [[group]]
    ends = group.ends
    del group
    elastic.tidy()
    ends.get(timeout=PATIENCE)


@pytest.mark.slow
@pytest.mark.parametrize("linger", [pytest.param("0", id="ended"), pytest.param("60", id="kept")])
def test_a_thread_of_torch_that_waits_for_a_peer_keeps_nobody_from_going_on_and_ending(
    tmp_path: Path, linger: str
) -> None:
    script = tmp_path / "script.py"
    script.write_text(WAITS_FOR_A_PEER)
    variables = {
        "WORLD_SIZE": "2",
        "LOCAL_WORLD_SIZE": "2",
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(free_ports(1)[0]),
    }
    ranks = [
        subprocess.Popen(
            [sys.executable, script, linger],
            env={**os.environ, **variables, "RANK": rank, "LOCAL_RANK": rank},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for rank in ("0", "1")
    ]
    try:
        output, _ = ranks[0].communicate(timeout=PATIENCE)
        assert (output, ranks[0].returncode) == ("goes on\n", 0)
    finally:
        for each in ranks:
            each.kill()
            each.communicate()
