"""What is proven of a wait: what may end it, and what is said of it."""

from dataclasses import replace

import pytest

from elastic_run.master.diagnosis.evidence import MAX_THREADS, Blocked, Child, Frame, ThreadState
from elastic_run.master.diagnosis.findings import Finding
from elastic_run.rendezvous.wire.values import decode, encode

from .looked_at import (
    ELSEWHERE,
    JOIN,
    LOCK,
    LONG,
    LOOP,
    NATIVE,
    PASSES,
    RUN,
    SLEEP,
    judged,
    the_one,
    thread,
    with_threads,
    worker,
)

POLLS = (PASSES, Frame("/x/site-packages/apscheduler/schedulers/background.py", 30, "_main_loop"))
BARS = (PASSES, Frame("/x/site-packages/tqdm/_monitor.py", 60, "TMonitor.run"))
NAP = replace(SLEEP, ends=5.0)


@pytest.mark.parametrize(
    ("others", "kind"),
    [
        ([thread(ELSEWHERE)], "deadlock"),
        ([thread((PASSES,))], "deadlock"),
        ([thread(BARS, replace(LOCK, ends=9.0))], "deadlock"),
        ([thread(ELSEWHERE)] * MAX_THREADS, "standstill"),  # more than are looked at
        ([thread(POLLS, replace(LOCK, ends=9.0))], "standstill"),
        ([thread(POLLS, Blocked())], "standstill"),
        *(
            ([thread(stack, each)], "standstill")
            for stack in (ELSEWHERE, POLLS)
            for each in (NAP, Blocked("recvfrom", "socket", "10.0.0.9:80"), Blocked("poll", "pipe", ends=5.0))
        ),
        ([thread(ELSEWHERE, Blocked("rt_sigtimedwait", "signal"))], "standstill"),
        ([thread(RUN, Blocked("wait4", "child"))], "standstill"),
        ([thread(NATIVE)], "standstill"),  # native code may be at a server
        ([thread(ELSEWHERE, Blocked("io_uring_enter"))], "standstill"),
        ([thread(LOOP, Blocked("epoll_wait", "local socket"))], "standstill"),
    ],
)
def test_a_wait_is_proven_only_where_no_other_thread_may_end_it(others: list[ThreadState], kind: str) -> None:
    assert the_one(worker(0), with_threads(worker(1, ELSEWHERE), *others)).kind == kind


def test_a_process_ends_the_wait_of_a_thread_for_what_it_shares_and_not_that_of_a_thread_of_a_pool() -> None:
    idle = (Frame("/usr/lib/python3.11/concurrent/futures/thread.py", 81, "_worker"),)
    waits = worker(1, ELSEWHERE, children=(Child(7, "python3", "S", 0.0),))
    for semaphore, kind in ((True, "deadlock"), (False, "standstill")):
        beside = with_threads(waits, thread(idle, replace(LOCK, semaphore=semaphore)))
        assert the_one(worker(0), beside).kind == kind


@pytest.mark.parametrize(
    ("signals", "children", "proven"),
    [
        ((2, 4, 6, 7, 8, 11, 32, 33), (), True),  # of Python, of faulthandler and of the C library
        ((2, 10), (), False),
        ((14,), (), False),
        ((15, 33), (), False),
        ((17,), (), True),  # there is no child to end
        ((17,), (Child(7, "sh", "Z", 0.0),), True),
        ((17,), (Child(7, "sh", "S", 0.0),), False),
    ],
)
def test_a_wait_that_a_handler_of_a_signal_may_end_is_no_proof(
    signals: tuple[int, ...], children: tuple[Child, ...], *, proven: bool
) -> None:
    for stack, on in ((ELSEWHERE, LOCK), (JOIN, LOCK), (ELSEWHERE, replace(SLEEP, ends=2e5))):
        waits = with_threads(worker(1, stack, on=on, signals=signals, children=children), thread(ELSEWHERE))
        early = the_one(worker(0), waits)
        assert (early.rank, early.strength) == ((1, "strong") if proven else (None, "weak"))
        (late,) = judged(worker(0, quiet=LONG), replace(waits, quiet=LONG))
        assert (late.rank, late.strength) == (1, "strong")


def test_a_wait_that_a_timer_of_the_process_may_end_is_no_proof() -> None:
    waits = with_threads(worker(1, ELSEWHERE, timers=True), thread(ELSEWHERE))
    early = the_one(worker(0), waits)
    assert (early.rank, early.strength) == (None, "weak")
    (late,) = judged(worker(0, quiet=LONG), replace(waits, quiet=LONG))
    assert (late.rank, late.strength) == (1, "strong")


@pytest.mark.parametrize("call", ["vfork", "clone", "clone3"])
def test_who_waits_for_a_process_that_has_not_begun_its_program_is_where_that_process_is(call: str) -> None:
    source = Blocked("openat", "pipe", "/tmp/records")
    child = Child(7, "python3", "S", 0.0, blocked=source)
    spawns = worker(1, NATIVE, state="D", on=Blocked(call, "child"), children=(child,))
    for seen in (spawns, with_threads(spawns, thread(NATIVE, source, child=True))):
        early = the_one(worker(0), seen)
        assert (early.rank, early.strength) == (None, "weak")
        (late,) = judged(worker(0, quiet=LONG), replace(seen, quiet=LONG))
        assert late.rank == 1 and late.kind in ("waits-for-child", "blocked-pipe")


def test_a_handler_of_the_process_that_works_in_a_workers_place_counts_and_a_shells_does_not() -> None:
    shell = worker(1, (), on=Blocked("wait4", "child"), signals=(2, 17), children=(Child(7, "python3", "S", 0.0),))
    stands = with_threads(shell, thread(ELSEWHERE, child=True))
    assert the_one(worker(0), stands).kind == "deadlock"
    handles = (Child(7, "python3", "S", 0.0, signals=(2, 10)),)
    assert the_one(worker(0), replace(stands, children=handles)).kind == "standstill"
    has_timers = (Child(7, "python3", "S", 0.0, timers=True),)
    assert the_one(worker(0), replace(stands, children=has_timers)).kind == "standstill"


def test_where_nobody_is_named_a_wait_is_told_as_what_is_known_of_it() -> None:
    lock = worker(1, NATIVE, on=replace(LOCK, semaphore=True))
    told = {
        "waits for a lock of its own process": lock,
        "waits for another rank or for a lock, in native code": worker(1, NATIVE),
        "waits for a lock, a queue, a thread or an event": worker(1, ELSEWHERE, signals=(10,)),
        "waits for a signal": worker(1, ELSEWHERE, on=Blocked("rt_sigtimedwait", "signal")),
        "waits": worker(1, ELSEWHERE, on=Blocked("io_uring_enter")),
    }
    for words, each in told.items():
        where = the_one(worker(0), each, worker(2)).where
        assert f"rank 1: {words}; " in where and where.startswith("ranks 0, 2: waits for another rank; all_reduce()")
    (found,) = judged(worker(0, quiet=LONG), replace(lock, quiet=LONG), worker(2, quiet=LONG))
    assert (found.kind, found.rank, found.strength) == ("deadlock", 1, "strong")


def test_long_names_leave_a_line_that_is_short_enough_to_be_sent_and_read() -> None:
    def stack(rank: int) -> tuple[Frame, ...]:
        return (
            Frame("/x/site-packages/a.py", 1, "f" * 400, "a" * 400),
            Frame(f"/home/{rank}{'n' * 390}", 2, "g" * 400),
        )

    found = the_one(*(worker(rank, stack(rank), on=Blocked("read", "file", "t" * 400)) for rank in range(5)))
    assert found.kind == "standstill" and len(str(found)) < 2000
    assert decode(Finding, encode(found)) == found


def test_who_waits_for_a_process_that_it_has_started_is_not_told_of_a_loader() -> None:
    lock = (Frame("/usr/lib/python3.11/multiprocessing/synchronize.py", 95, "SemLock.__enter__"), *NATIVE)
    child = Child(7, "python3", "S", 0.0)
    found = the_one(worker(0, quiet=LONG), worker(1, lock, on=LOCK, quiet=LONG, children=(child,)))
    assert "waits for data, or for a lock, of processes that it has started, and they do nothing" in str(found)
    dead = worker(1, lock, on=LOCK, quiet=LONG, children=(replace(child, state="Z"),))
    assert "waits for a process that it has started, and that has died" in str(the_one(worker(0, quiet=LONG), dead))
