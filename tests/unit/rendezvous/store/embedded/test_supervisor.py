"""When a supervisor stops its member, decided on values alone."""

import os
from pathlib import Path

import pytest

from elastic_run.rendezvous.store.embedded.supervisor import (
    History,
    Patience,
    Seen,
    Space,
    cut,
    heard,
    in_vain,
    judge,
    pause,
    space_of,
    touch,
)

PATIENCE = Patience(linger=10, grace=60, forsaken=600)


@pytest.mark.parametrize(
    ("seen", "now", "verdict"),
    [
        pytest.param(Seen(0), 10_000, "keep", id="it waits for its quorum as long as an agent here uses it"),
        pytest.param(Seen(0, orphaned=5), 64, "keep", id="a waiting member outlives its agent for a while"),
        pytest.param(Seen(0, orphaned=5), 65, "stop", id="and not for ever"),
        pytest.param(Seen(0, answered=100, heard=999), 999, "keep", id="no node has come, and its agent lives"),
        pytest.param(Seen(0, answered=1, heard=12, orphaned=2), 12, "retire", id="its agent died before any node"),
        pytest.param(Seen(0, answered=1, heard=99, nodes=99, orphaned=9), 99, "keep", id="a job has a node"),
        pytest.param(Seen(0, answered=1, heard=108, nodes=99, orphaned=9), 108, "keep", id="a job has just ended"),
        pytest.param(Seen(0, answered=1, heard=109, nodes=99, orphaned=9), 109, "retire", id="no job for the linger"),
        pytest.param(Seen(0, answered=1, heard=99, nodes=99, orphaned=9), 500, "keep", id="silence is no evidence"),
        pytest.param(Seen(0, answered=1, heard=1, orphaned=2), 500, "keep", id="nor is it before the first node"),
        pytest.param(Seen(0, 1, 999, 99, led=1), 999, "keep", id="the agent is stopped and its lease has ended"),
        pytest.param(Seen(0, 1, 999, 99, orphaned=990), 999, "keep", id="the agent has just ended"),
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


def test_the_time_without_a_node_begins_anew_after_a_silence() -> None:
    """All was stopped for a minute, and the nodes' leases have ended meanwhile."""
    seen = Seen(0, answered=1, heard=100, nodes=100, orphaned=2)
    assert heard(seen, False, 101).nodes == 100
    assert heard(seen, False, 160).nodes == 160
    never = heard(Seen(0, answered=1, heard=100, orphaned=2), False, 160)
    assert never.nodes is None and judge(never, PATIENCE, 160)[0] == "keep"


def test_an_etcd_that_dies_again_and_again_is_started_after_growing_pauses() -> None:
    assert [pause(deaths) for deaths in range(1, 10)] == [0, 0, 0, 1, 2, 4, 8, 10, 10]


def test_starts_in_vain_are_counted_where_only_the_data_can_be_the_reason() -> None:
    assert in_vain(3, steady=False, excused=False) == 4
    assert in_vain(3, steady=False, excused=True) == 3
    assert in_vain(3, steady=True, excused=False) == 0


MIB = 1024 * 1024


def cuts(*sizes: int, leads: bool = True, full: bool = False) -> list[int | None]:
    """At each look, with so many MiB in use and revisions 10, 20, 30 ..., before which one history is forgotten."""
    history, found = History(), list[int | None]()
    for number, size in enumerate(sizes, 1):
        history, revision = cut(history, Space(size * MIB, 10 * number, leads, full))
        found.append(revision)
    return found


def test_history_is_bounded_in_bytes() -> None:
    assert cuts(1, 30, 60, 90, 91, 5, 20, 70) == [None, None, None, 30, None, None, None, 70]


def test_keys_that_are_large_themselves_are_not_taken_for_history() -> None:
    assert cuts(300, 310, 320) == [None, None, None]


def test_one_member_cuts_the_history_of_all() -> None:
    assert cuts(1, 90, 190, leads=False) == [None, None, None]


def test_where_etcd_refuses_writes_for_want_of_space_all_history_goes() -> None:
    assert cuts(1, leads=False, full=True) == [10]


def test_what_a_member_says_of_its_space_is_read() -> None:
    status: dict[str, object] = {"header": {"member_id": "7", "revision": "9"}, "dbSize": "30", "leader": "7"}
    assert space_of(status) == Space(30, 9, leads=True, full=False)
    status |= {"dbSizeInUse": "20", "errors": ["memberID:7 alarm:NOSPACE "], "leader": "8"}
    assert space_of(status) == Space(20, 9, leads=False, full=True)
    assert space_of({"error": "no"}) is None


def test_all_in_a_members_folder_is_renewed(tmp_path: Path) -> None:
    inner = tmp_path / "data" / "wal"
    inner.parent.mkdir()
    inner.write_text("x")
    for path in (tmp_path, inner.parent, inner):
        os.utime(path, (1, 1))
    touch((tmp_path / "missing",), tmp_path)
    assert all(path.stat().st_mtime > 1 for path in (tmp_path, inner.parent, inner))
