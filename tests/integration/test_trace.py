"""The trace of whole jobs: real agents, real workers, and what their files tell of a recovery."""

import itertools
import json
import signal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from .cluster import Cluster

if TYPE_CHECKING:
    pass

Event = dict[str, Any]  # Any: JSON


def rows(file: Path) -> dict[str, list[Event]]:
    """The events of each row, in order of their beginning."""
    first, *lines = file.read_text(encoding="utf-8").splitlines()
    assert first == "["
    found = [json.loads(line.removesuffix(",")) for line in lines]
    names = {event["tid"]: event["args"]["name"] for event in found if event["name"] == "thread_name"}
    by_row: dict[str, list[Event]] = {name: [] for name in names.values()}
    for event in sorted(found, key=lambda event: event["ts"]):
        if event["ph"] != "M":
            by_row[names[event["tid"]]].append(event)
    return by_row


def names(events: list[Event]) -> list[str]:
    return [event["name"] for event in events]


def overlaps(events: list[Event]) -> list[tuple[str, str]]:
    """Spans of one row that lie neither beside nor inside each other, which viewers drop."""
    spans = [event for event in events if event["ph"] == "X"]
    return [
        (one["name"], other["name"])
        for one, other in itertools.combinations(spans, 2)
        if one["ts"] < other["ts"] < end(one) - 0.01 < end(other) - 0.02
    ]


def end(event: Event) -> float:
    return event["ts"] + event.get("dur", 0)


def test_a_killed_worker_s_recovery_can_be_read_from_the_trace(job: Cluster) -> None:
    job.start("A", nnodes=2, trace="A.json")
    job.start("B", trace="B.json")
    first = job.workers(2)
    first.do(0, "import elastic_run; elastic_run.trace.mark('restore', step=7)")
    victim, witness = first[1].node, first[0].node
    first[1].tell("import os, signal; os.kill(os.getpid(), signal.SIGKILL)")
    second = job.workers(2)
    second.do(
        1, "import elastic_run; s = elastic_run.trace.span('checkpoint'); s.__enter__(); s.__exit__(None, None, None)"
    )
    second.release()
    assert job.finish() == {"A": 0, "B": 0}

    trace = {node: rows(job.directory / f"{node}.json") for node in "AB"}
    of = trace[victim]
    (detect,) = [event for event in of["rounds"] if event["name"] == "detect"]
    assert detect["args"] == {"round": 1, "rank": 1, "pid": first[1].pid, "signal": "SIGKILL"}
    (decide,) = [event for event in of["rounds"] if event["name"] == "decide" and event["args"]["round"] == 2]
    assert decide["args"]["cause"] == "failure"
    assert f"rank 1 on node {victim} died by SIGKILL (9)" in decide["args"]["reason"]
    stop = [event for event in of["agent"] if event["name"] == "stop" and event["args"]["round"] == 1]
    (start,) = [event for event in of["agent"] if event["name"] == "start" and event["args"]["round"] == 2]
    assert start["args"]["ranks"] == "1"
    steps = [detect, decide, *stop, start]
    assert names(steps) == ["detect", "decide", *["stop"] * len(stop), "start"] and stop
    for before, after in itertools.pairwise(steps[1:]):
        assert end(before) <= after["ts"]
    assert detect["ts"] <= decide["ts"]

    (life,) = [event for event in of["rank 1"] if event["name"] == "round 1"]
    assert life["args"]["signal"] == "SIGKILL"
    assert names(of["rank 1"]) == ["round 1", "round 2", "checkpoint"]
    beside = trace[witness]
    assert names(beside["rank 0"]) == ["round 1", "restore", "round 2"]
    assert beside["rank 0"][1]["args"] == {"step": 7}
    assert "detect" not in names(beside["rounds"])
    for life, said in ((of["rank 1"][1], of["rank 1"][2]), (beside["rank 0"][0], beside["rank 0"][1])):
        assert life["ts"] <= said["ts"] and end(said) <= end(life)

    (master,) = [events["master"] for events in trace.values() if "master" in events]
    recovery = [
        event for event in master if event["args"].get("round") in (1, 2) or event["args"].get("what") == "open"
    ]
    assert names(recovery)[-3:] == ["decision", "evidence", "publish"]
    decision, evidence, publish = recovery[-3:]
    assert end(decision) == pytest.approx(publish["ts"], abs=0.01)
    assert decision["ts"] <= evidence["ts"] <= end(decision)

    for events in trace.values():
        assert {row: overlaps(of) for row, of in events.items() if overlaps(of)} == {}
        startup = ["interpreter", "options", "clock", "store", "prepare", "register"]
        assert names(events["agent"])[: len(startup)] == startup
        assert names(events["agent"])[-3:] == ["leave", "farewell", "exit"]
        assert events["agent"][-1]["args"]["code"] == 0


def test_a_notice_to_leave_is_in_the_trace(alone: Cluster) -> None:
    alone.start("A", trace="deep/A.json")
    alone.workers(1)[0].tell("import signal; signal.signal(signal.SIGTERM, signal.SIG_DFL)")
    alone.nodes["A"].process.send_signal(signal.SIGTERM)
    assert alone.finish() == {"A": 143}
    agent = rows(alone.directory / "deep" / "A.json")["agent"]
    assert names(agent)[-5:] == ["notice", "stop", "leave", "farewell", "exit"]
    assert agent[-1]["args"]["code"] == 143


def test_a_full_disk_costs_the_trace_and_nothing_else(alone: Cluster) -> None:
    alone.start("A", trace="/dev/full")
    alone.workers(1).release()
    assert alone.finish() == {"A": 0}
    assert alone.log("A").count("the trace /dev/full cannot be written (No space left on device)") == 1


def test_a_file_that_cannot_be_written_is_refused_before_anything_starts(alone: Cluster) -> None:
    alone.start("A", trace="/proc/trace.json")
    assert alone.finish() == {"A": 2}
    assert "--trace=/proc/trace.json cannot be written" in alone.log("A")
