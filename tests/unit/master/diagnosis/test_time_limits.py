"""Who waits with a time-out, or beside a thread that goes on, is named only once that has ended nothing."""

from dataclasses import replace

import pytest

from elastic_run.master.diagnosis.evidence import Blocked, Frame, Worker

from .looked_at import (
    ELSEWHERE,
    EVALUATION,
    LOCK,
    LONG,
    LOOP,
    NATIVE,
    PASSES,
    SLEEP,
    judged,
    the_one,
    thread,
    with_threads,
    worker,
)

BARS = (PASSES, Frame("/x/site-packages/tqdm/_monitor.py", 60, "TMonitor.run"))

MINUTES = 3 * 240.0
"""Seconds after which a time-out of four minutes has passed three times."""


def named(suspect: Worker, quiet: float) -> int | None:
    """Who is, where two others have waited for so long."""
    found = judged(worker(0, quiet=quiet), replace(suspect, quiet=quiet), worker(2, quiet=quiet))
    return next((each.rank for each in found if each.strength != "weak"), None)


@pytest.mark.parametrize(
    "waits",
    [
        worker(1, LOOP, on=Blocked("epoll_wait", "local socket", "a local socket", ends=240.0)),
        worker(1, NATIVE, on=Blocked("poll", "local socket", "a local socket", ends=240.0)),
        worker(1, NATIVE, on=Blocked("ppoll", "pipe", "a pipe", ends=240.0)),
        worker(1, NATIVE, on=replace(LOCK, ends=100.0), rested=140.0),  # of a lock's the rest is seen
    ],
)
def test_a_wait_with_a_time_out_is_named_once_that_has_passed_several_times(waits: Worker) -> None:
    assert the_one(worker(0, quiet=LONG), replace(waits, quiet=LONG), worker(2, quiet=LONG)).kind == "standstill"
    assert named(waits, MINUTES - 10.0) is None
    assert named(waits, MINUTES + 10.0) == 1


def test_a_time_out_that_is_no_reason_to_wait_for_is_as_none() -> None:
    """It is of a library that means to wait; and who asks again after a short one is named as before."""
    for ends in (1200.0, 5.0, None):
        assert named(worker(1, ELSEWHERE, on=replace(LOCK, ends=ends), rested=LONG if ends != 5.0 else 2.0), LONG) == 1


@pytest.mark.parametrize("on", [replace(LOCK, ends=40.0), replace(SLEEP, ends=40.0)])
def test_a_time_out_or_a_sleep_of_another_thread_may_end_a_wait_for_what_that_has(on: Blocked) -> None:
    """The thread keeps the lock, and how long it has waited already is not seen."""
    for waits in (worker(1, NATIVE), worker(1, ELSEWHERE), worker(1, NATIVE, on=Blocked("recvfrom", "local socket"))):
        keeps = thread(EVALUATION, on)
        assert named(with_threads(waits, keeps), LONG) is None
        assert named(with_threads(waits, keeps), 20 * 40.0 + 5.0) == 1
        short = replace(keeps, blocked=replace(on, ends=5.0))
        assert named(with_threads(waits, short), LONG) == 1, "it does so again and again"
        assert named(with_threads(waits, thread(BARS, on)), LONG) == 1, "that one keeps nothing"
        assert named(with_threads(waits, replace(keeps, child=True, blocked=replace(on, ends=1200.0))), LONG) == 1


def test_a_queue_is_awaited_for_as_long_as_a_thread_may_work_through_it() -> None:
    join = Frame("/usr/lib/python3.11/queue.py", 90, "Queue.join")
    get = Frame("/usr/lib/python3.11/queue.py", 171, "Queue.get")
    waits = worker(1, (PASSES, join, *NATIVE))
    writes = thread(EVALUATION, replace(SLEEP, ends=0.5))
    assert named(with_threads(waits, writes), 10 * LONG) is None
    for others in (
        (),
        (thread((PASSES, get, *EVALUATION)),),
        (writes, replace(thread((PASSES, get, *NATIVE)), number=8)),
    ):
        assert named(with_threads(waits, *others), LONG) == 1, "no thread works, or one has nothing to do"
    assert named(with_threads(worker(1, ELSEWHERE), writes), LONG) == 1, "it waits for no queue"


def test_where_all_ranks_are_stopped_somebody_pauses_the_job() -> None:
    stopped = [worker(rank, ELSEWHERE, state="T", quiet=LONG) for rank in range(3)]
    found = the_one(*stopped)
    assert (found.kind, found.rank, found.strength) == ("standstill", None, "weak")
    assert found.where.startswith(
        "all are stopped, as by somebody who pauses the job: ranks 0-2: is stopped by a signal"
    )
    (found,) = judged(*stopped[:2], worker(2, quiet=LONG))[:1]
    assert (found.kind, found.rank, found.strength) == ("stopped", 0, "certain")
    assert named(worker(1, ELSEWHERE, state="T"), LONG) == 1
    assert the_one(stopped[0]).kind == "stopped", "of one rank alone nobody can tell"
