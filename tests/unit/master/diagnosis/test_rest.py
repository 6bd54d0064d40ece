"""Whether ranks have come to rest, and what works beside them without ending anybody's wait: from evidence alone."""

from dataclasses import replace

import pytest

from elastic_run.master.diagnosis.evidence import Blocked, Child, Frame, Socket, ThreadState, Worker

from .looked_at import (
    ALL_REDUCE,
    BARRIER,
    ELSEWHERE,
    LOCK,
    LONG,
    NATIVE,
    SLEEP,
    judged,
    the_one,
    thread,
    with_threads,
    worker,
)

NAPS = worker(2, NATIVE, on=replace(SLEEP, ends=0.4), quiet=LONG, woken=300)
"""Light steps, of which only the sleep between them is seen."""


def test_a_rank_that_sleeps_between_its_steps_is_named_only_when_the_others_have_rested_for_so_long() -> None:
    since = the_one(worker(0, quiet=LONG, rested=70.0), worker(1, quiet=LONG, rested=50.0), NAPS)
    assert (since.kind, since.seconds) == ("standstill", LONG), "they had taken steps themselves until then"
    found = the_one(worker(0, quiet=LONG, rested=LONG), worker(1, quiet=LONG, rested=50.0), NAPS)
    assert (found.kind, found.rank, found.strength) == ("sleeps", 2, "strong")
    asks = worker(0, quiet=LONG, rested=0.5, on=Blocked("poll", "socket", "10.0.0.9:80", ends=5.0))
    assert the_one(asks, NAPS).rank == 2, "who asks again and again wakes up, and waits"


def test_a_rank_whose_sleeps_grow_comes_on_and_one_that_sleeps_as_long_each_time_does_not() -> None:
    sleeps = worker(1, NATIVE, on=replace(SLEEP, ends=40.0), quiet=LONG, rested=20.0, woken=6)
    assert judged(worker(0, quiet=LONG), replace(sleeps, rested=60.0), worker(2, quiet=LONG)) == ()
    found = the_one(worker(0, quiet=LONG), sleeps, worker(2, quiet=LONG))
    assert (found.kind, found.rank, found.strength) == ("sleeps", 1, "strong")


def test_ranks_that_have_run_a_moment_ago_are_not_in_operations_that_do_not_match() -> None:
    steps = [worker(rank, BARRIER if rank == 1 else ALL_REDUCE, rested=40.0) for rank in range(3)]
    assert judged(*steps) == ()
    (found,) = judged(*(replace(each, rested=46.0) for each in steps))
    assert (found.kind, found.rank, found.strength, found.seconds) == ("mismatched-collective", 1, "strong", 46.0)


def receives(*, src: str) -> tuple[Frame, ...]:
    return (replace(ALL_REDUCE[0], function="recv", arguments=src), Frame("/home/me/train.py", 50, "gather"))


def test_who_receives_from_any_rank_while_all_others_wait_for_it_is_named_unless_a_thread_may_send() -> None:
    first = worker(0, receives(src="src=None"))
    found = the_one(first, worker(1), worker(2))
    assert (found.kind, found.rank, found.strength) == ("mismatched-collective", 0, "strong")
    assert found.where == "recv(src=None), train.py:50 in gather"
    assert the_one(worker(0, receives(src="")), worker(1), worker(2)).strength == "weak", "from whom is not known"
    sends = with_threads(worker(1), thread(NATIVE, SLEEP))
    assert the_one(first, sends, worker(2)).strength == "weak"


INIT = (replace(ALL_REDUCE[0], function="init_process_group"), Frame("/home/me/train.py", 80, "evaluate"))
SPAWN = (Frame("/usr/lib/python3.11/multiprocessing/connection.py", 947, "wait"), *NATIVE)
CHILD = (Child(7, "python3", "S", 0.0, blocked=LOCK),)


def evaluates(*others: ThreadState, apart: bool = True, quiet: float = LONG) -> Worker:
    inner = replace(thread(INIT, child=True), apart=apart)
    return with_threads(worker(1, SPAWN, on=Blocked("poll", "pipe"), children=CHILD, quiet=quiet), inner, *others)


def test_a_process_in_a_group_of_its_ranks_own_waits_for_no_other_rank() -> None:
    (found,) = judged(worker(0, quiet=LONG), evaluates(), worker(2, quiet=LONG))
    assert (found.kind, found.rank, found.strength) == ("waits-for-child", 1, "strong")
    assert found.where == "init_process_group(), train.py:80 in evaluate"
    early = the_one(worker(0), evaluates(quiet=70.0), worker(2))
    assert early.kind == "standstill", "another process may join the group"
    trains = the_one(worker(0, quiet=LONG), evaluates(apart=False), worker(2, quiet=LONG))
    assert (trains.kind, trains.strength) == ("mismatched-collective", "weak"), "it may be in a group with other ranks"


def test_a_process_that_comes_to_the_group_of_its_rank_later_is_what_the_rank_waits_for() -> None:
    late = replace(thread(NATIVE, replace(SLEEP, ends=100.0), child=True), number=8)
    assert judged(worker(0, quiet=LONG), evaluates(late), worker(2, quiet=LONG)) == ()
    ready = (replace(CHILD[0], state="R"),)
    assert judged(worker(0, quiet=LONG), replace(evaluates(), children=ready), worker(2, quiet=LONG)) == ()


def test_a_rank_that_has_come_on_while_the_others_waited_is_given_as_much_time_as_they_were() -> None:
    loads = worker(1, ELSEWHERE, on=Blocked("read", "pipe"), quiet=LONG / 2)
    assert the_one(worker(0, quiet=LONG), loads, worker(2, quiet=LONG)).kind == "standstill"
    assert the_one(worker(0, quiet=LONG), replace(loads, quiet=LONG), worker(2, quiet=LONG)).rank == 1
    asks = [worker(rank, NATIVE, on=replace(SLEEP, ends=0.4), quiet=LONG, woken=300) for rank in (0, 1)]
    assert the_one(*asks, worker(2, quiet=LONG)).rank == 2, "most ask for what it does not do"
    assert the_one(asks[0], replace(asks[1], quiet=70.0, woken=60), worker(2, quiet=LONG)).kind == "standstill"


POOL = "/usr/lib/python3.11/multiprocessing/pool.py"
HANDLER = (Frame("/usr/lib/python3.11/selectors.py", 359, "register"), Frame(POOL, 522, "Pool._handle_workers"))


def fetches(*others: ThreadState, keeper: tuple[Frame, ...] = HANDLER, rested: float = 70.0) -> Worker:
    """A pool's result is not fetched, because its thread waits for another one: the pool's keeper does not rest."""
    made = worker(1, (Frame(POOL, 765, "ApplyResult.wait"), *ELSEWHERE[1:]), quiet=0.0, rested=rested)
    looks = [
        replace(each, cpu=0.98 * each.at, holds_gil=False, gil_holder="select (s.py:1)") for each in made.snapshots
    ]
    threads = [
        (ThreadState(5, False, "R", 0.98 * each.at, Blocked(), keeper), *others) for each in (looks[0], looks[-1])
    ]
    first, last = (replace(each, threads=those) for each, those in zip((looks[0], looks[-1]), threads, strict=True))
    return replace(made, snapshots=(first, *looks[1:-1], last))


def test_what_looks_after_a_pools_processes_is_no_work_and_ends_no_wait() -> None:
    found = the_one(worker(0), fetches(thread(ELSEWHERE)), worker(2))
    assert (found.kind, found.rank, found.strength) == ("deadlock", 1, "strong")
    assert judged(worker(0), fetches(thread(ELSEWHERE), rested=1.0), worker(2)) == (), "it has come to rest just now"
    other = (HANDLER[0], replace(HANDLER[1], function="Pool._handle_results"))
    assert not any(each.rank == 1 for each in judged(worker(0), fetches(thread(ELSEWHERE), keeper=other), worker(2)))
    sleeps = fetches(thread(ELSEWHERE, replace(SLEEP, ends=9.0)))
    assert the_one(worker(0), sleeps, worker(2)).kind == "standstill", "a call-back may take its time"


def test_a_lock_in_shared_memory_may_be_set_free_by_a_process_that_is_not_seen() -> None:
    waits = worker(1, ELSEWHERE, on=replace(LOCK, shared=True))
    assert the_one(worker(0), waits, worker(2)).kind == "standstill"
    held = with_threads(worker(1, ELSEWHERE), thread(ELSEWHERE, replace(LOCK, shared=True)))
    assert the_one(worker(0), held, worker(2)).kind == "standstill"
    (found,) = judged(worker(0, quiet=LONG), replace(waits, quiet=LONG), worker(2, quiet=LONG))
    assert (found.kind, found.rank, found.strength) == ("deadlock", 1, "strong")


FOLLOWS = Blocked("clock_nanosleep", "time", ends=1.0)
ENDED = [replace(worker(rank), ended=0, snapshots=()) for rank in (0, 1)]


def shell(*on: Blocked, rested: float = LONG, **more: object) -> Worker:
    children = tuple(Child(70 + at, "tail", "S", 0.0, blocked=each) for at, each in enumerate(on))
    waits = worker(2, (), on=Blocked("wait4", "child"), quiet=LONG, rested=rested, native=True, children=children)
    return replace(waits, **more)  # pyright: ignore[reportArgumentType]


@pytest.mark.parametrize(
    ("rank", "kind"),
    [
        (shell(FOLLOWS), "waits-for-child"),
        (shell(replace(FOLLOWS, ends=None), Blocked("read", "pipe", "a pipe")), "waits-for-child"),
        (
            last := replace(shell(), snapshots=worker(2, (), on=Blocked("openat", "pipe", "/tmp/f")).snapshots),
            "blocked-pipe",
        ),
        (shell(replace(FOLLOWS, ends=600.0)), "standstill"),  # it ends by itself
        (shell(FOLLOWS, Blocked("poll", "socket", "10.0.0.9:443")), "standstill"),  # an upload
        (shell(FOLLOWS, rested=50.0), "standstill"),  # a loop that starts a program again and again
        (shell(FOLLOWS, native=False), "standstill"),  # its stack was not taken
    ],
)
def test_a_program_without_python_that_keeps_a_job_from_its_end_is_named_late(rank: Worker, kind: str) -> None:
    found = the_one(*ENDED, rank)
    assert (found.kind, found.rank) == (kind, None if kind == "standstill" else 2)
    if kind != "standstill":
        assert found.strength == "strong"
        assert the_one(*ENDED, replace(rank, rested=200.0)).kind == "standstill"


def test_who_waits_for_the_store_in_its_own_process_as_others_do_waits_for_a_rank() -> None:
    def asks(rank: int, *more: Socket) -> Worker:
        client = Socket(f"127.0.0.1:{400 + rank}", "127.0.0.1:29500")
        on = Blocked("poll", "socket", client.remote, (client,))
        return worker(rank, NATIVE, on=on, quiet=LONG, connections=(client, *more))

    host = asks(0, *(Socket("127.0.0.1:29500", f"127.0.0.1:{400 + rank}") for rank in range(3)))
    found = the_one(host, asks(1), worker(2, quiet=LONG))
    assert (found.kind, found.rank, found.waiting) == ("mismatched-collective", 2, (0, 1))
    found = the_one(host, worker(1, quiet=LONG), worker(2, quiet=LONG))
    assert (found.kind, found.rank) == ("silent-server", 0), "nobody else waits for what is in its process"


API, INTERNAL = (f"/x/site-packages/torch/distributed/rpc/{name}.py" for name in ("api", "internal"))
RUNS = Frame(INTERNAL, 209, "_run_function")
CALLS = (Frame(API, 842, "rpc_sync"), Frame(API, 99, "_require_initialized.<locals>.wrapper"), *NATIVE)


def serves(*threads: ThreadState, quiet: float = LONG) -> Worker:
    return with_threads(worker(2, quiet=quiet), *threads)


def test_a_rank_that_runs_a_function_for_another_one_is_where_that_function_is() -> None:
    caller, other = worker(1, CALLS, quiet=LONG), worker(0, quiet=LONG)
    holds = thread((*ELSEWHERE[:2], RUNS), replace(LOCK, semaphore=True))
    (found,) = judged(other, caller, serves(holds))
    assert (found.kind, found.rank, found.strength, found.waiting) == ("deadlock", 2, "strong", (0, 1))
    early = the_one(worker(0), worker(1, CALLS), serves(holds, quiet=70.0))
    assert early.kind == "standstill", "the rank itself may set it free when the others come"
    sleeps = thread((*ELSEWHERE[:2], RUNS), replace(SLEEP, ends=100.0))
    assert judged(other, caller, replace(serves(holds, sleeps), woken=9)) == (), "it comes on"
    forwards = thread((*CALLS, RUNS))
    locked = with_threads(caller, thread((NATIVE[0], RUNS)))
    (found,) = judged(other, locked, serves(forwards))
    assert (found.rank, found.strength) == (1, "strong"), "its own function waits, and the other rank for that one"


def test_a_call_of_another_ranks_function_is_no_operation_that_does_not_match_until_it_has_lasted_for_long() -> None:
    assert the_one(worker(0), worker(1, CALLS), worker(2)).strength == "weak", "native code may run it"
    (found,) = judged(*(worker(rank, CALLS if rank == 1 else ALL_REDUCE, quiet=LONG) for rank in range(3)))
    assert (found.kind, found.rank, found.strength) == ("mismatched-collective", 1, "strong")


def test_who_waits_in_native_code_may_wait_for_a_function_that_another_rank_runs() -> None:
    waits, other = worker(1, NATIVE, quiet=LONG), worker(0, quiet=LONG)
    assert the_one(other, waits, worker(2, quiet=LONG)).strength == "strong"
    assert the_one(other, waits, serves(thread((*CALLS, RUNS)))).strength == "weak"
    calls = worker(1, CALLS, quiet=LONG)
    assert the_one(other, calls, serves(thread((*CALLS, RUNS)))).strength == "weak"
