"""What two nodes write of one job: it fails once, loses a node, and succeeds (for the tests of histories and pages)."""

import dataclasses

from elastic_run.launcher.history.records import Begun, Ended, Over, Point, Published, Record, Snapshot, Started
from elastic_run.master.data.ledger import Progress
from elastic_run.master.machine.training_time import Goodput
from elastic_run.master.status import Node, Status
from elastic_run.rendezvous.header import HeaderState, Incident, Tally
from elastic_run.rendezvous.member import Exit
from elastic_run.rendezvous.node_reasons import LeaseExpired
from elastic_run.rendezvous.reasons import (
    AllJoined,
    AllSucceeded,
    IncidentReason,
    NoChange,
    NodesLost,
    Note,
    Notes,
    Reason,
    WorkerFailed,
)
from elastic_run.rendezvous.round import Cause
from elastic_run.rendezvous.time_split import Split

BEGAN = 1_700_000_000.0
TRACEBACK = 'Traceback (most recent call last):\n  File "train.py", line 3, in <module>\n    step()\nValueError: no\n'
FAILED = Exit(1, 3, 1, 4711, code=1, message="ValueError: no", traceback=TRACEBACK)
BROKEN = WorkerFailed("b", 3, 1, None, "ValueError: no")
SPLIT = Split(productive=50_000_000, initialization=2_000_000, infrastructure_recovery_from_disruption=8_000_000)


def header(
    number: int,
    at: float,
    world: int,
    reason: Reason,
    cause: Cause = "start",
    state: HeaderState = "open",
    incident: Incident | None = None,
) -> Published:
    return Published(
        BEGAN + at, number, "run", state, cause, reason, world // 2, 2, world, 3, False, Tally(failures=1), SPLIT,
        incident, True,
    )  # fmt: skip


def incident(round: int, cause: Cause, reason: IncidentReason, exit_: Exit | None = None) -> Incident:
    return Incident(round, cause, reason, "b", "b.host", exit_)


LOST = NodesLost(Notes((Note("b", LeaseExpired()),)))


def job() -> dict[str, list[Record]]:
    """By node; b's clock is 100 s ahead, and it writes no more after its loss."""
    failure = incident(1, "failure", BROKEN, FAILED)
    loss = incident(2, "lost", LOST)
    first = header(1, 1.0, 4, AllJoined(2))
    second = header(2, 11.0, 4, BROKEN, "failure", incident=failure)
    third = header(3, 31.0, 2, LOST, "lost", incident=loss)
    end = header(4, 61.0, 2, AllSucceeded(3), "lost", "succeeded")
    datasets = (Progress("images", "checkpoint", 100, 40, 6, 12.5),)
    status = Status(
        "job", "run", "open", 3, 1.0, "lost", BROKEN, NoChange(), None, False, (), 2,
        (Node("a", "a.host", "running", 2, 0, "default"),), (), (), Tally(failures=1), 3, (), datasets,
        Goodput.of(SPLIT),
    )  # fmt: skip
    a: list[Record] = [
        Begun(BEGAN, "job", "a", "a.host", "train.py", "1:2", 2, "0.1.0"),
        first,
        Started(BEGAN + 2.0, "a", 1, 0, 2, 2.0),
        second,
        Started(BEGAN + 12.0, "a", 2, 0, 2, 1.5),
        Point(BEGAN + 20.0, 2, 4, SPLIT, (Progress("images", "checkpoint", 100, 10, 6, 30.0),)),
        third,
        Started(BEGAN + 33.0, "a", 3, 0, 2, 3.0),
        Point(BEGAN + 50.0, 3, 2, SPLIT, datasets),
        Snapshot(BEGAN + 50.0, status),
        end,
        Over(BEGAN + 62.0, 0, "all workers succeeded"),
    ]
    b: list[Record] = [
        Begun(BEGAN + 0.5, "job", "b", "b.host", "train.py", "1:2", 2, "0.1.0"),
        first,
        Started(BEGAN + 2.5, "b", 1, 2, 2, 2.0),
        Ended(BEGAN + 10.5, FAILED, "epoch 1\nlast words\n"),
        second,
        Started(BEGAN + 12.2, "b", 2, 2, 2, 1.7),
    ]
    return {"a": a, "b": [dataclasses.replace(each, unix=each.unix + 100.0) for each in b]}
