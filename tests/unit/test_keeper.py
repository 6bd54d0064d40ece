"""When a keeper stops its member, decided on values alone."""

import base64

import pytest

from elastic_run.rendezvous.keeper import Patience, Seen, judge, node_keys, range_end

PATIENCE = Patience(linger=10, grace=60, forsaken=600)


@pytest.mark.parametrize(
    ("seen", "now", "verdict"),
    [
        pytest.param(Seen(0), 10_000, "keep", id="it waits for its quorum as long as its agent lives"),
        pytest.param(Seen(0, orphaned=5), 64, "keep", id="a waiting member outlives its agent for a while"),
        pytest.param(Seen(0, orphaned=5), 65, "stop", id="and not for ever"),
        pytest.param(Seen(0, answered=100, heard=159), 159, "keep", id="the first node has time to come"),
        pytest.param(Seen(0, answered=100, heard=160), 160, "retire", id="no node ever came"),
        pytest.param(Seen(0, answered=1, heard=12, orphaned=2), 12, "retire", id="its agent died before any node"),
        pytest.param(Seen(0, answered=1, heard=99, nodes=99), 99, "keep", id="a job has a node"),
        pytest.param(Seen(0, answered=1, heard=108, nodes=99), 108, "keep", id="a job has just ended"),
        pytest.param(Seen(0, answered=1, heard=109, nodes=99), 109, "retire", id="no job for the linger"),
        pytest.param(Seen(0, answered=1, heard=99, nodes=99), 500, "keep", id="silence is no evidence of no job"),
        pytest.param(Seen(0, 1, 999, 999, led=1, orphaned=400), 999, "keep", id="without a leader for a while"),
        pytest.param(Seen(0, 1, 999, 999, led=1, orphaned=399), 999, "stop", id="without agent and leader for long"),
        pytest.param(Seen(0, 1, 9999, 9999, led=1), 9999, "keep", id="without a leader while its agent lives"),
        pytest.param(Seen(0, 1, 9999, 9999, led=9999, orphaned=2), 9999, "keep", id="it serves other jobs"),
    ],
)
def test_a_member_is_kept_as_long_as_somebody_needs_it(seen: Seen, now: float, verdict: str) -> None:
    decided, reason = judge(seen, PATIENCE, now)
    assert decided == verdict
    assert reason


def answer(*entries: tuple[str, int]) -> dict[str, object]:
    kvs = [
        {"key": base64.b64encode(key.encode()).decode()} | ({"lease": str(lease)} if lease else {})
        for key, lease in entries
    ]
    return {"kvs": kvs}


def test_only_leased_node_keys_count() -> None:
    found = node_keys(
        answer(
            ("/elastic-run/job/leader", 1),
            ("/elastic-run/job/assignments/7.1/n0", 0),
            ("/elastic-run/job/nodes/n0", 0),
            ("/elastic-run/job/nodes/n1", 7),
            ("/elastic-run/team/job/nodes/n2", 7),
        )
    )
    assert found == [b"/elastic-run/job/nodes/n1", b"/elastic-run/team/job/nodes/n2"]


def test_an_empty_answer_holds_no_nodes() -> None:
    assert node_keys({"header": {}}) == []


def test_the_end_of_a_prefix_is_the_next_text_after_all_of_it() -> None:
    end = range_end(b"/elastic-run/")
    assert end == b"/elastic-run0"
