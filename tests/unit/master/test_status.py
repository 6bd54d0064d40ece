"""The whole job as one value."""

import dataclasses
import json

from elastic_run.master.data.ledger import Progress
from elastic_run.master.machine import events
from elastic_run.master.status import NEWEST, Status
from elastic_run.rendezvous.member import Exit, Report
from elastic_run.rendezvous.node_reasons import ProcessGone
from elastic_run.rendezvous.reasons import NoChange, NodesLost, NoRoom, Suspended, WaitingForNodes
from elastic_run.rendezvous.wire.values import decode, encode

from ...doubles.statuses import GOLDEN, TERMS, ControlledJob, failed, running


def test_before_the_first_round_says_who_is_awaited_and_for_how_long() -> None:
    job = ControlledJob()
    job.node("a", 1, 0.0)
    job.tell(events.Found(None, 0, 0.0), 0.0)
    job.look(1.0)
    status = job.controller.status(11.0)
    assert (status.state, status.round, status.age, status.world_size) == ("gathering", 0, 11.0, 0)
    assert status.next == WaitingForNodes(1, "2", 1, 600.0) and status.deadline == 589.0
    assert [node.node for node in status.standbys] == ["a"] and status.nodes == ()
    assert status.goodput.share is None


def test_of_a_round_names_its_nodes_with_their_ranks_and_who_waits_and_why() -> None:
    job = running()
    job.look(4.0)
    status = job.controller.status(5.0)
    assert [(node.node, node.state, node.first_rank, node.workers) for node in status.nodes] == [
        ("a", "running", 0, 2),
        ("b", "running", 2, 2),
    ]
    assert [node.node for node in status.standbys] == ["c"]
    assert isinstance(status.next, NoRoom) and "c waits as a standby" in str(status.next)


def test_of_a_job_that_failed_once_is_this_json() -> None:
    job = failed()
    job.runs("a", 1, 10.0)
    job.runs("b", 2, 11.0)
    job.look(12.0)
    status = job.controller.status(20.0, (Progress("images", "checkpoint", 100, 40, 6, 12.5),))
    assert json.loads(encode(status)) == json.loads(GOLDEN.read_text(encoding="utf-8"))
    assert decode(Status, encode(status)) == status


def test_of_a_suspended_job_names_the_nodes_it_had_and_which_is_lost() -> None:
    job = running()
    job.tell(events.Unregistered("c"), 4.0)
    job.tell(events.Died("b", "b#1", ProcessGone("b:1"), None), 5.0)
    job.look(5.0)
    status = job.controller.status(6.0)
    assert status.state == "waiting" and status.world_size == 0
    assert [(node.node, node.state) for node in status.nodes] == [("a", "running"), ("b", "lost")]
    assert isinstance(status.reason, Suspended) and isinstance(status.incidents[-1].reason, NodesLost)
    assert (status.tally.lost, status.incidents[-1].ago) == (1, 1.0)


def test_of_a_job_that_has_ended_waits_for_nothing() -> None:
    job = running()
    for name, order in (("a", 1), ("b", 2)):
        job.node(name, order, 6.0, Report("succeeded", 1, run="run"))
    job.look(7.0)
    status = job.controller.status(8.0)
    assert (status.state, status.next, status.deadline) == ("succeeded", NoChange(), None)
    assert status.goodput.trained == 7.0 - 3.0


def test_a_round_does_not_train_between_the_first_evidence_and_the_next_round() -> None:
    job = failed()
    assert (job.header.split.productive, job.header.split.total) == (4_000_000, 8_000_000)
    job.runs("a", 1, 10.0)
    job.runs("b", 2, 11.0)
    goodput = job.controller.status(21.0).goodput
    assert (goodput.trained, goodput.elapsed) == (4.0 + 10.0, 20.0)


def test_a_new_master_counts_on_and_knows_the_last_incident() -> None:
    second = failed().published[-1]
    after = ControlledJob()
    for name, order in (("a", 1), ("b", 2)):
        after.node(name, order, 100.0, Report("running", 2, run="run"))
    after.tell(events.Found(second.header, 12, 90.0, second.assignments), 100.0)
    after.look(100.0)
    after.look(100.0)
    status = after.controller.status(110.0)
    assert (status.goodput.trained, status.goodput.elapsed) == (4.0 + 10.0, 8.0 + 20.0)
    assert [incident.round for incident in status.incidents] == [1] and status.incidents[0].ago == 20.0
    assert status.round == 2 and [node.state for node in status.nodes] == ["running"] * 2


def test_many_incidents_are_told_only_as_the_newest() -> None:
    job = ControlledJob(dataclasses.replace(TERMS, max_restarts=100))
    job.node("a", 1, 0.0)
    job.node("b", 2, 0.0)
    job.tell(events.Found(None, 0, 0.0), 0.0)
    job.look(0.0)
    for number in range(1, NEWEST + 5):
        exit_ = Exit(number, 0, 0, 1, signal=9, seconds=100.0)
        job.node("a", 1, 10.0 * number, Report("failed", number, (exit_,), run="run"))
        job.look(10.0 * number + 5)
    incidents = job.controller.status(1000.0).incidents
    assert [incident.round for incident in incidents] == list(range(5, NEWEST + 5))
