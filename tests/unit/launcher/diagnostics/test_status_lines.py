"""A job's status as a person reads it."""

import dataclasses

import pytest

from elastic_run.launcher.diagnostics.status_lines import lines
from elastic_run.launcher.errors import UsageError
from elastic_run.launcher.options.reach import Reach, parse_reach
from elastic_run.master.machine.parameter_servers import (
    RankWait,
    ServerMeasure,
    ServerReport,
    ServersStatus,
    ServerStatus,
    TableMeasure,
)
from elastic_run.master.machine.targets import PlannedSize, Target

from ....doubles.statuses import STATUS


def test_a_running_job_is_one_block() -> None:
    assert "\n".join(lines(STATUS)) == (
        """\
job job: trains in round 2 for 11 s, 4 workers (rank 3 on node b exited with code 1: ValueError: no)
  wanted: nodes 2; c waits as a standby (the job has its maximum of nodes) until a node is lost
  NODE  HOST    STATE    RANKS    ROLE
  a     a.host  running  0-1
  b     b.host  running  2-3
  c     c.host  waiting  standby
  so far: 1 worker failure of 3 allowed, goodput 68.4 % of 19 s
  lost: infrastructure recovery from disruption 4.0 s, initialization 2.0 s
  data images: 40 of 100 shards done, 6 leased, about 12 s left
  11 s ago, round 1: rank 3 on node b exited with code 1: ValueError: no"""
    )


def test_a_job_with_a_plan_says_why_it_has_so_many_nodes() -> None:
    why = "2 nodes: 1 more node would add 3 %, by what 1 and 2 nodes did"
    found = list(lines(dataclasses.replace(STATUS, targets=(Target("", 2, PlannedSize(why)),))))
    assert found[2] == f"  plan: {why}"


def test_parameter_servers_are_a_table_with_who_waits_for_them() -> None:
    tables = (TableMeasure("user", 30, 2400, 20, 10),)
    first = ServerReport(0, "x", "answers", 0.1, 512, 512, 0, 243_900_000, ServerMeasure(tables, saved_ago=12.0))
    second = ServerReport(1, "", "starting", 3.0)
    servers = (ServerStatus("a", first, 5.45, 5.39, 0.00012, 0.0052), ServerStatus("b", second))
    seen = ServersStatus(servers, (RankWait(0, (1,), 2.0), RankWait(1, (1,), 2.0)))
    found = "\n".join(lines(dataclasses.replace(STATUS, parameter_servers=seen)))
    assert (
        """\
  SERVER  NODE  STATE             SLOTS    ROWS  MB   PULLS/s         PUSHES/s       SAVED
  0       a     answers           512+512  30    244  5.45 (0.12 ms)  5.39 (5.2 ms)  12 s ago
  1       b     starting for 3 s  0+0      0     0.0  -               -              -
  512 slots are not served yet
  table user: 30 rows (second copies included), 0.0 MB, 2.0 ids given for each that was pulled
  ranks 0-1 wait for parameter server 1 on node b, for 2 s
"""
        in found
    )


def test_what_a_terminal_would_obey_is_not_printed() -> None:
    (node, *others) = STATUS.nodes
    forged = dataclasses.replace(STATUS, nodes=(dataclasses.replace(node, host="\x1b[2Jhost\nline"), *others))
    text = "\n".join(lines(forged))
    assert "\x1b" not in text and "\nline" not in text


def test_before_the_first_round_it_says_what_it_waits_for() -> None:
    gathering = dataclasses.replace(STATUS, state="gathering", round=0, reason=None, nodes=(), deadline=400.0)
    first, second, *_ = lines(gathering)
    assert first == "job job: no round yet, for 11 s"
    assert second.endswith("(at most 7 min more)")


def reach(*words: str, **environ: str) -> Reach:
    return parse_reach(words, environ, "status")


def test_a_job_is_asked_with_the_flags_of_its_nodes() -> None:
    asked = reach("--rdzv-endpoint=h1:1,h2", "--rdzv-id", "night", PET_NNODES="2:8")
    assert [str(each) for each in asked.store.endpoints] == ["h1:1", "h2:2379"] and asked.job_id == "night"
    assert reach().store.kind == "implicit" and reach().job_id is None


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (("train.py",), "takes no script: 'train.py' is left over"),
        (("--nnodes=2",), "does not take --nnodes=2"),
        (("--rdzv-idd=2",), "unknown flag"),
    ],
)
def test_what_it_does_not_take_is_refused(words: tuple[str, ...], sentence: str) -> None:
    with pytest.raises(UsageError, match=sentence):
        reach(*words)
