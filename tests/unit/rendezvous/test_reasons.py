"""Each reason: what lies in the store, and the sentence for a person."""

import dataclasses
import json
from typing import Any, get_args

import pytest

from elastic_run.rendezvous import node_reasons as n
from elastic_run.rendezvous import reasons as r
from elastic_run.rendezvous.header import Eviction
from elastic_run.rendezvous.wire.values import Malformed, Tagged, Unknown, decode, encode

TWO, MANY = r.Nodes.of("ab"), r.Nodes.of("abcdef")
FAILED = r.WorkerFailed("a", 1, 3, None, "ValueError: no")
PEER = r.PeerLost("b", 2, 1, "Connection reset")
NEVER = "(--scale-up=never keeps new nodes as standbys)"

SENTENCES = [
    (r.WaitingForNodes(1, "2:4", 1, 600.0), "1 of 2:4 nodes have joined: waiting for 1 more, for at most 600 s"),
    (r.WaitingForNodes(1, "2:4", 1, 3.1536e7), "1 of 2:4 nodes have joined: waiting for 1 more, for at most 365 days"),
    (r.TooFewNodes(1, "2:4", 0.5), "only 1 of 2:4 nodes joined within 0.5 s"),
    (
        r.WaitingForNodes(4, "3:4", 1, 600.0, "1 ps"),
        "4 of 3:4 nodes have joined: waiting for 1 more (1 ps), for at most 600 s",
    ),
    (
        r.TooFewNodes(4, "3:4", 0.5, "1 ps"),
        "4 of 3:4 nodes joined within 0.5 s, and these are missing: 1 ps",
    ),
    (r.LastCall(2, "2:4", 3.0), "2 of 2:4 nodes have joined: the last call ends 3 s after the latest join"),
    (r.LastCallOver(2, "2:4", 3.0), "2 of 2:4 nodes have joined, and no other node joined within 3 s"),
    (r.AllJoined(4), "all 4 nodes have joined"),
    (r.AllJoined(1), "single-node job"),
    (r.JoinedAgain(3, "2:4"), "3 of 2:4 nodes have joined again"),
    (r.NoChange(), ""),
    (r.PreparingWorkers(TWO), "a, b are preparing their workers"),
    (r.PreparingWorkers(r.Nodes(("a",))), "a is preparing its workers"),
    (
        r.NeverScalesUp(MANY),
        "a, b, c, d and 2 more wait as standbys (--scale-up=never) until the next membership change",
    ),
    (r.NoRoom(r.Nodes(("a",)), 0), "a waits as a standby (the job has its maximum of nodes) until a node is lost"),
    (r.NoRoom(r.Nodes(("a",)), 2), "a waits as a standby (--node-unit=2) until a node is lost"),
    (r.JoinedTooLate(TWO, 3), "a, b joined too late: workers of round 3 are already finishing"),
    (r.AwaitingCheckpoint(TWO), "a, b will join after the next checkpoint (--scale-up=commit)"),
    (r.Settling(TWO, 9.5, "all"), f"a, b will join 9.5 s after registering, which restarts the script {NEVER}"),
    (r.Settling(TWO, 1.0), f"a, b will join 1 s after registering {NEVER}"),
    (r.NodesJoined(TWO), "a, b joined"),
    (r.NodesJoined(TWO, "some"), f"a, b joined, which restarts some workers {NEVER}"),
    (r.NodesLost(r.Notes.of([("a", n.LeaseExpired())])), "node a was lost: its lease expired"),
    (
        r.NodesLeft(r.Notes.of([(each, n.PreemptionNotice(15)) for each in "abcdef"])),
        "; ".join(f"node {each} left: it received SIGTERM" for each in "abcd") + " and 2 more",
    ),
    (FAILED, "rank 1 on node a exited with code 3: ValueError: no"),
    (r.WorkerFailed("a", 1, None, 9, ""), "rank 1 on node a died by SIGKILL (9)"),
    (
        r.OutOfMemory("a", 1, 2),
        "rank 1 on node a died by SIGKILL (9): killed by the kernel: out of memory (oom_kill rose by 2)",
    ),
    (PEER, "rank 2 on node b lost its connection to another rank (exit code 1: Connection reset)"),
    (r.PeerLost("b", 0, 1, "Timed out", waited="rank 0"), "rank 0 gave up waiting for another rank (Timed out)"),
    (r.EndedEarly("a", 1, PEER), f"rank 1 on node a ended with exit code 0 while other ranks still needed it; {PEER}"),
    (r.ReturnWanted("server 0 has gone: the job goes back"), "server 0 has gone: the job goes back"),
    (r.NodeFailed("a", n.StartFailed("port 5 is taken")), "node a could not start its workers: port 5 is taken"),
    (r.NodesMissing(1, 3), "1 of 3 nodes were lost"),
    (r.NodesLeaving(TWO), "a, b left the job"),
    (r.RestartsSpent(FAILED, 4, 3), f"{FAILED}; this is failure 4, and --max-restarts=3 allows 3"),
    (
        r.SameFailure(FAILED, 3, 60.0),
        f"{FAILED}; the same failure 3 times in a row, each within 60 s of the start "
        "(--same-failure-limit=0 restarts anyway)",
    ),
    (r.StartsFailed(FAILED, 5), f"{FAILED}; rounds failed to start 5 times in a row"),
    (
        r.CannotBeFixed(FAILED),
        f"{FAILED}; every rank failed in the same way, and a restart cannot fix it "
        "(--same-failure-limit=0 restarts anyway)",
    ),
    (r.AwaitingReports(FAILED, "any"), f"{FAILED}; waiting for other failure reports before the job ends"),
    (r.AwaitingReports(FAILED, "all"), f"{FAILED}; waiting for the reports of the other ranks"),
    (r.AwaitingReports(PEER, "first"), f"{PEER}; waiting for the report of the rank that failed first"),
    (
        r.Suspended(r.NodesMissing(1, 2), 1, 2, 1, 600.0),
        "1 of 2 nodes were lost; 1 of 2 required nodes remain: waiting for 1 more, for at most 600 s",
    ),
    (r.AllSucceeded(3), "every worker of round 3 ended with exit code 0"),
    (r.AllSucceeded(3, counted=True), "every worker of round 3 whose role counts ended with exit code 0"),
    (r.NoNodeFit(n.Unfit("no memory")), "no remaining node can start workers: no memory"),
    (r.StandsStill("rank 1 on node A sleeps"), "the job makes no progress (--on-hang=fail): rank 1 on node A sleeps"),
    (
        r.RecordsLeft("shard 3 of dataset 'd'"),
        "every worker ended with exit code 0, and one of them left shard 3 of dataset 'd' begun, which is nobody's",
    ),
    (r.AllLeaving(TWO), "the job ends because every node is leaving (a, b)"),
    (r.AllLeaving(r.Nodes(("a",))), "the job ends because its only node is leaving"),
    (Unknown("Newer"), "Newer (another version of elastic-run says why)"),
]


@dataclasses.dataclass(frozen=True)
class Holder:
    reason: r.Reason


@pytest.mark.parametrize(("reason", "sentence"), SENTENCES, ids=[each.code for each, _ in SENTENCES])
def test_a_reason_has_its_sentence_and_comes_back_from_the_store(reason: Any, sentence: str) -> None:
    assert str(reason) == sentence
    assert decode(Holder, encode(Holder(reason))) == Holder(reason)


def test_each_reason_has_its_sentence_above() -> None:
    assert {type(reason) for reason, _ in SENTENCES} == set(get_args(r.Reason))


NODE_SENTENCES = [
    (n.ProcessGone("a:1"), "its agent's process is gone (a:1 refuses connections)"),
    (n.AddressReused("a:1"), "another process uses its address (a:1)"),
    (n.LeaseExpired(), "its lease expired"),
    (n.NotReturned(True), "its key is gone from the store, and it has not registered again, although it answers"),
    (n.NotReturned(False), "its key is gone from the store, and it does not answer"),
    (n.StartedAgain(), "its key is gone from the store, and it was started again"),
    (
        n.NotRegistered(),
        "it was not registered when this master took over: its lease had expired, or it had been evicted",
    ),
    (n.EvictedBefore(), "it was evicted"),
    (n.RunEnded(), "its run of the job ended without it"),
    (
        n.OtherCommand("train", "--epochs is 3 there and 4 here"),
        "job 'train' was started with another command or source than this node: --epochs is 3 there and 4 here. "
        "Give this one its own --rdzv-id, or start both with the same command and source",
    ),
    (n.PreemptionNotice(15), "it received SIGTERM"),
    (n.PreemptionNotice(0), "it was asked to leave"),
    (n.Replaced("a standby takes its place: rank 1 is slow"), "a standby takes its place: rank 1 is slow"),
    (n.Unfit("no memory"), "no memory"),
    (n.StartFailed("port 5 is taken"), "could not start its workers: port 5 is taken"),
    (n.ServiceEnded("the service x died"), "could not continue: the service x died"),
    (n.ReturnWanted("server 0 has gone"), "server 0 has gone"),
    (n.ServersLost("rows are gone"), "cannot continue: rows are gone"),
    (
        n.ProcessGroupBroke("reset"),
        "has workers whose process group broke, although no node is known to be lost: reset",
    ),
    (n.Unexplained(), "has failed workers, and its report gives no reason"),
    (Unknown("Newer"), "Newer (another version of elastic-run says why)"),
]


@pytest.mark.parametrize(("reason", "sentence"), NODE_SENTENCES, ids=[each.code for each, _ in NODE_SENTENCES])
def test_a_node_s_reason_has_its_sentence_and_comes_back_from_the_store(reason: Any, sentence: str) -> None:
    assert str(reason) == sentence
    assert decode(Eviction, encode(Eviction(reason))) == Eviction(reason)


def test_each_reason_of_a_node_has_its_sentence_above() -> None:
    assert {type(reason) for reason, _ in NODE_SENTENCES} == set(get_args(n.NodeReason))


def test_a_reason_lies_in_the_store_as_its_code_and_its_values() -> None:
    stored = json.loads(encode(Holder(r.Suspended(r.NodesMissing(1, 2), 1, 2, 1, 600.0))))["reason"]
    assert stored["code"] == "Suspended" and stored["seconds"] == 600.0
    assert stored["what"] == {"code": "NodesMissing", "lost": 1, "of": 2}


def test_a_code_of_a_newer_version_is_read_and_named() -> None:
    newer = json.dumps({"reason": {"code": "Newer", "nodes": [1, {}]}}).encode()
    assert decode(Holder, newer).reason == Unknown("Newer")


@pytest.mark.parametrize(
    "raw",
    [
        None,
        "AllJoined",
        [],
        {},
        {"code": 3},
        {"code": "AllJoined"},
        {"code": "AllJoined", "nodes": -1},
        {"code": "x" * 101},
    ],
)
def test_what_is_no_reason_is_malformed(raw: object) -> None:
    with pytest.raises(Malformed, match=r"Holder\.reason"):
        decode(Holder, json.dumps({"reason": raw}).encode())


def test_only_the_reasons_of_a_union_are_read_as_its_members() -> None:
    @dataclasses.dataclass(frozen=True)
    class Strict:
        reason: r.AllJoined | r.NoChange

    with pytest.raises(Malformed, match="'AllSucceeded' is not one of"):
        decode(Strict, json.dumps({"reason": {"code": "AllSucceeded", "round": 1}}).encode())


def test_no_reason_has_a_field_that_is_called_like_its_code() -> None:
    assert all(issubclass(kind, Tagged) and "code" not in kind.__slots__ for kind in get_args(r.Reason))
