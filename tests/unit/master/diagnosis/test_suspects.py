"""Who is named for a job that stands still, from evidence alone."""

import random
from collections.abc import Iterable
from dataclasses import replace
from statistics import median

import pytest

from elastic_run.master.diagnosis import stragglers as module
from elastic_run.master.diagnosis.evidence import (
    Answer,
    Blocked,
    Child,
    Disk,
    Frame,
    NodeEvidence,
    Snapshot,
    Socket,
    ThreadState,
    Worker,
)
from elastic_run.master.diagnosis.findings import Finding
from elastic_run.master.diagnosis.stragglers import stragglers
from elastic_run.master.diagnosis.suspects import suspects
from elastic_run.rendezvous.base.plural import ranks
from elastic_run.rendezvous.wire.values import decode, encode

from .looked_at import (
    ALL_REDUCE,
    BARRIER,
    ELSEWHERE,
    EVALUATION,
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


def last_look(each: Worker, **change: object) -> Worker:
    last = replace(each.snapshots[-1], **change)  # pyright: ignore[reportArgumentType]
    return replace(each, snapshots=(*each.snapshots[:-1], last))


def test_a_rank_that_waits_for_a_lock_while_the_others_wait_for_it_is_a_deadlock() -> None:
    found = the_one(worker(0), worker(1, ELSEWHERE), worker(2))
    assert (found.kind, found.rank, found.strength) == ("deadlock", 1, "strong")
    assert found.waiting == (0, 2)
    assert str(found) == (
        "rank 1 on node A waits for a lock, a queue, a thread or an event (wait(), train.py:12 in log), for 70 s; "
        "ranks 0, 2 wait in all_reduce(), train.py:38 in train"
    )


@pytest.mark.parametrize(
    ("kind", "suspect"),
    [
        ("stopped", worker(1, ELSEWHERE, state="T")),
        ("stopped", worker(1, ELSEWHERE, on=Blocked("read", "pipe"), children=(Child(77, "python3", "T", 0.0),))),
        ("sleeps", worker(1, ELSEWHERE, on=Blocked("clock_nanosleep", "time"))),
        ("blocked-pipe", worker(1, ELSEWHERE, on=Blocked("read", "pipe", "/data/fifo"))),
        ("blocked-file", worker(1, ELSEWHERE, on=Blocked("openat", "file", "/mnt/data"))),
        ("blocked-file", worker(1, ELSEWHERE, state="D", on=Blocked("read", "file", "/mnt/data"))),
        ("file-lock", worker(1, ELSEWHERE, on=Blocked("flock", "file", "/data/lock", holders=(5,)))),
        ("silent-server", worker(1, ELSEWHERE, on=Blocked("recvfrom", "socket", "10.0.0.9:80"))),
        ("waits-for-child", worker(1, ELSEWHERE, on=Blocked("wait4", "child"))),
        ("sleeps", worker(1, ELSEWHERE, on=Blocked("rt_sigtimedwait", "signal"))),
        (
            "loader-stuck",
            worker(
                1,
                (Frame("/usr/lib/python3.11/multiprocessing/queues.py", 103, "get"), *ELSEWHERE),
                children=(Child(77, "python3", "S", 0.0),),
            ),
        ),
        (
            "loader-died",
            worker(
                1,
                (Frame("/usr/lib/python3.11/multiprocessing/queues.py", 103, "get"), *ELSEWHERE),
                children=(Child(77, "python3", "Z", 0.0),),
            ),
        ),
    ],
)
def test_the_kernel_tells_what_the_odd_one_out_waits_for(kind: str, suspect: Worker) -> None:
    (found,) = judged(worker(0, quiet=LONG), replace(suspect, quiet=LONG), worker(2, quiet=LONG))
    assert (found.kind, found.rank) == (kind, 1)
    assert found.strength == ("certain" if kind in ("stopped", "loader-died") else "strong")


def test_a_rank_that_keeps_the_interpreters_lock_in_a_wait_is_named() -> None:
    suspect = worker(1, ELSEWHERE)
    held = tuple(replace(each, holds_gil=True) for each in suspect.snapshots)
    keeps = replace(suspect, snapshots=held)
    assert the_one(worker(0), keeps).kind == "standstill", "a call of native code may come back"
    found = the_one(worker(0, quiet=LONG), replace(keeps, quiet=LONG))
    assert (found.kind, found.rank, found.strength) == ("gil-held", 1, "strong")


def test_a_rank_that_is_ready_to_run_and_gets_no_processor_is_named() -> None:
    starved = worker(1, ELSEWHERE, state="R", quiet=LONG)
    found = the_one(worker(0, quiet=LONG), starved)
    assert (found.kind, found.rank) == ("cpu-taken", 1)
    assert the_one(worker(0), replace(starved, quiet=70.0)).kind == "standstill", "the others may end"
    waits = worker(1, ELSEWHERE, quiet=LONG, on=Blocked("poll", "pipe", ends=5.0))
    assert judged(worker(0, quiet=LONG), last_look(waits, delayed=3.0)) == (), "it was ready before the first look"
    found = the_one(worker(0, quiet=LONG), replace(starved, throttled=0.5))
    assert "gets no processor (wait(), train.py:12 in log, its control group has used up its quota)" in str(found)


def test_a_rank_that_computes_at_changing_places_is_busy_and_no_fault() -> None:
    evaluates = worker(1, quiet=0.0, cpu=0.9, stacks=(ELSEWHERE, EVALUATION, ALL_REDUCE[1:]) * 4)
    assert judged(worker(0, quiet=600.0), evaluates) == ()


def test_a_rank_that_computes_in_one_place_is_named_only_when_the_others_have_waited_for_long() -> None:
    loops = worker(1, quiet=0.0, cpu=0.9, stacks=(ELSEWHERE,) * 12)
    assert the_one(worker(0, quiet=130.0), loops).kind == "standstill"
    few = worker(1, ELSEWHERE, quiet=0.0, cpu=0.9)
    assert judged(worker(0, quiet=LONG), few) == ()
    found = the_one(worker(0, quiet=LONG), loops)
    assert (found.kind, found.rank, found.strength) == ("busy-loop", 1, "strong")


def test_a_loop_of_python_code_is_told_on_a_busy_machine_too_and_computing_in_a_library_is_not() -> None:
    loops = worker(1, quiet=0.0, cpu=0.2, stacks=(ELSEWHERE,) * 12)
    shared = tuple(replace(each, delayed=0.78 * each.at) for each in loops.snapshots)
    assert the_one(worker(0, quiet=LONG), replace(loops, snapshots=shared)).kind == "standstill", "all takes longer"
    assert the_one(worker(0, quiet=3.2 * LONG), replace(loops, snapshots=shared)).kind == "busy-loop"
    native = replace(loops, snapshots=tuple(replace(each, holds_gil=False) for each in shared))
    assert judged(worker(0, quiet=3 * LONG), native) == ()
    assert the_one(worker(0, quiet=5 * LONG), native).kind == "long-compute"


RESULT = (Frame("/home/me/train.py", 44, "train"), Frame("/home/me/train.py", 60, "<module>"))
SYNCHRONIZE = (Frame("/usr/lib/python3.11/site-packages/torch/cuda/__init__.py", 1162, "synchronize"), *RESULT)


def on_a_device(rank: int, stack: tuple[Frame, ...] = SYNCHRONIZE, spins: float = 70.0) -> Worker:
    """One that waits for its accelerator in a loop of native code."""
    looked = worker(rank, state="R", quiet=0.0, cpu=1.0, on=Blocked(), stacks=(stack,) * 12)
    free = tuple(replace(each, holds_gil=False) for each in looked.snapshots)
    return replace(looked, snapshots=free, spins=spins)


@pytest.mark.parametrize("place", [SYNCHRONIZE, RESULT])
def test_a_rank_that_waits_for_its_accelerator_is_named_only_at_a_third_look(place: tuple[Frame, ...]) -> None:
    assert judged(worker(0, quiet=120.0), on_a_device(1, place, 120.0)) == ()
    found = the_one(worker(0, quiet=240.0), on_a_device(1, place, 240.0))
    assert (found.kind, found.rank, found.strength, found.waiting) == ("device-wait", 1, "weak", (0,))
    assert judged(worker(0, quiet=240.0), on_a_device(1, place, 3.0)) == (), "it has waited in the kernel since"


def test_a_rank_that_sleeps_until_its_accelerator_is_ready_is_no_rank_in_another_collective() -> None:
    event = (Frame("/usr/lib/python3.11/site-packages/torch/cuda/streams.py", 226, "synchronize"), *RESULT)
    assert judged(worker(0), worker(1, event)) == ()
    found = the_one(worker(0, quiet=240.0), worker(1, event, quiet=240.0))
    assert (found.kind, found.rank, found.strength) == ("device-wait", 1, "weak")


def test_a_thread_that_computes_beside_a_main_thread_that_waits_is_no_wait_for_an_accelerator() -> None:
    pool = worker(1, RESULT, quiet=0.0, cpu=1.0, stacks=(RESULT,) * 12)
    free = tuple(replace(each, holds_gil=False) for each in pool.snapshots)
    assert judged(worker(0, quiet=240.0), replace(pool, snapshots=free, spins=240.0)) == ()


def test_a_rank_for_which_the_others_wait_on_their_accelerators_is_named_at_the_third_look() -> None:
    assert judged(on_a_device(0), worker(1, ELSEWHERE), on_a_device(2, RESULT)) == ()
    stuck = worker(1, ELSEWHERE, quiet=240.0)
    found = the_one(on_a_device(0, spins=240.0), stuck, on_a_device(2, RESULT, 240.0))
    assert (found.kind, found.rank, found.strength, found.waiting) == ("deadlock", 1, "weak", (0, 2))
    assert found.seconds == 240.0


def test_a_rank_for_which_others_wait_in_a_collective_is_named_whatever_accelerators_do() -> None:
    found = the_one(on_a_device(0), worker(1, ELSEWHERE), worker(2))
    assert (found.kind, found.rank, found.waiting) == ("deadlock", 1, (2,))
    found = the_one(on_a_device(0, ALL_REDUCE), worker(1, ELSEWHERE))
    assert (found.kind, found.rank, found.strength, found.waiting) == ("deadlock", 1, "weak", (0,))


def test_of_many_ranks_on_their_accelerators_and_few_that_wait_in_another_way_nobody_is_named() -> None:
    many = [on_a_device(rank, spins=240.0) for rank in range(3)]
    assert judged(*many, worker(3, BARRIER, quiet=240.0)) == ()


def test_where_all_wait_for_their_accelerators_nobody_is_named() -> None:
    """A loop that waits for each result looks alike."""
    assert judged(on_a_device(0, spins=240.0), on_a_device(1, spins=240.0), on_a_device(2, RESULT, 240.0)) == ()
    assert judged(on_a_device(0, spins=240.0), Worker(1, 1, 1001, ended=0)) == ()
    event = (Frame("/usr/lib/python3.11/site-packages/torch/cuda/streams.py", 226, "synchronize"), *RESULT)
    elsewhere = (event[0], *ELSEWHERE)
    assert judged(worker(0, event), worker(1, event), worker(2, elsewhere)) == ()
    assert judged(worker(0, event), worker(1, event)) == ()


def test_a_main_thread_that_wakes_up_between_waits_for_its_accelerator_comes_on() -> None:
    event = (Frame("/usr/lib/python3.11/site-packages/torch/cuda/streams.py", 226, "synchronize"), *RESULT)
    waits = worker(1, event, quiet=240.0)
    last = replace(waits.snapshots[-1], switches=6)
    assert judged(worker(0, quiet=240.0), replace(waits, snapshots=(*waits.snapshots[:-1], last))) == ()


def test_computing_in_native_code_is_told_very_late_and_never_with_an_accelerator() -> None:
    assert judged(worker(0, quiet=590.0), on_a_device(1, RESULT, 0.0)) == ()
    found = the_one(worker(0, quiet=610.0), on_a_device(1, RESULT, 0.0))
    assert (found.kind, found.rank, found.strength) == ("long-compute", 1, "strong")
    found = the_one(worker(0, quiet=610.0), on_a_device(1, RESULT, 610.0))
    assert (found.kind, found.strength) == ("device-wait", "weak")


@pytest.mark.parametrize(
    ("stacks", "told"),
    [
        ((ELSEWHERE, ELSEWHERE), "long-compute"),
        ((ELSEWHERE, EVALUATION), "long-compute"),  # a function and one that it calls
        ((EVALUATION, ALL_REDUCE[1:]), ""),
    ],
)
def test_a_process_that_computes_in_one_function_is_told_very_late(
    stacks: tuple[tuple[Frame, ...], ...], told: str
) -> None:
    parent = worker(1, ELSEWHERE, on=Blocked("wait4", "child"))
    looks = [
        replace(look, child_cpu=cpu, threads=(ThreadState(7, True, "R", cpu, Blocked(), stack),))
        for look, cpu, stack in zip((parent.snapshots[0], parent.snapshots[-1]), (0.0, 0.6), stacks, strict=True)
    ]
    works = replace(parent, snapshots=tuple(looks))
    assert "long-compute" not in [each.kind for each in judged(worker(0, quiet=590.0), works)]
    assert [each.kind for each in judged(worker(0, quiet=610.0), works)] == ([told] if told else [])


def test_a_rank_that_prints_or_reads_is_not_named() -> None:
    suspect = worker(1, ELSEWHERE)
    last = replace(suspect.snapshots[-1], moved=1 << 20, switches=3)
    assert judged(worker(0), replace(suspect, snapshots=(*suspect.snapshots[:-1], last))) == ()


def test_a_rank_whose_child_computes_is_not_named() -> None:
    suspect = worker(1, ELSEWHERE, on=Blocked("wait4", "child"))
    last = replace(suspect.snapshots[-1], child_cpu=0.5)
    assert judged(worker(0), replace(suspect, snapshots=(*suspect.snapshots[:-1], last))) == ()


def test_a_rank_that_has_only_just_come_to_rest_is_not_named() -> None:
    assert judged(worker(0), worker(1, ELSEWHERE, quiet=1.0)) == ()


def test_a_server_that_sends_little_at_a_time_is_not_silent() -> None:
    suspect = worker(1, ELSEWHERE, on=Blocked("recvfrom", "socket", "10.0.0.9:80"))
    last = replace(suspect.snapshots[-1], switches=6)
    assert judged(worker(0), replace(suspect, snapshots=(*suspect.snapshots[:-1], last))) == ()


def test_a_server_that_sends_something_now_and_then_is_not_silent() -> None:
    suspect = worker(1, ELSEWHERE, on=Blocked("recvfrom", "socket", "10.0.0.9:80"), woken=3)
    assert judged(worker(0, quiet=LONG), replace(suspect, quiet=LONG, woken=200)) == ()
    assert the_one(worker(0, quiet=LONG), replace(suspect, quiet=LONG, woken=1)).kind == "silent-server"


@pytest.mark.parametrize(
    ("kind", "on"),
    [
        ("silent-server", Blocked("poll", "socket", "10.0.0.9:80")),
        ("blocked-pipe", Blocked("poll", "pipe", "/data/fifo")),
    ],
)
def test_whoever_gives_up_and_asks_again_is_named_when_it_has_done_so_for_long_and_a_trickle_is_not(
    kind: str, on: Blocked
) -> None:
    first = worker(1, ELSEWHERE, on=on, woken=3)
    assert judged(worker(0), first, worker(2)) == ()
    others = worker(0, quiet=LONG), worker(2, quiet=LONG)
    found = the_one(*others, replace(first, quiet=LONG, woken=18))  # a time-out of 20 s
    assert (found.kind, found.rank, found.strength) == (kind, 1, "strong")
    assert judged(*others, replace(first, quiet=LONG, woken=240)) == ()  # something comes every 1.5 s


def test_the_rank_in_another_collective_is_named() -> None:
    found = the_one(worker(0), worker(1), worker(2, BARRIER))
    assert (found.kind, found.rank, found.strength) == ("mismatched-collective", 2, "strong")
    assert found.where == "barrier(), train.py:41 in train"


def test_a_rank_that_waits_for_the_launcher_is_no_cause() -> None:
    frames = (Frame("/x/site-packages/elastic_run/adapters/client/channel.py", 120, "receive"), *ELSEWHERE)
    waits = worker(0, frames, on=Blocked("poll", "local socket"), quiet=LONG)
    found = the_one(waits, worker(1, ELSEWHERE, state="T"))
    assert (found.kind, found.rank, found.waiting) == ("stopped", 1, (0,))


def test_what_a_library_wraps_its_functions_in_is_not_named() -> None:
    wrapper = Frame("/usr/lib/python3.11/site-packages/torch/distributed/c10d_logger.py", 81, "logger.<locals>.wrapper")
    found = the_one(worker(0), worker(1), worker(2, (BARRIER[0], wrapper, *BARRIER[1:])))
    assert found.where == "barrier(), train.py:41 in train"


def test_of_two_ranks_the_one_that_is_further_on_is_named_on_weak_evidence() -> None:
    found = the_one(worker(0), worker(1, BARRIER))
    assert (found.rank, found.strength) == (1, "weak")


def test_a_rank_that_waits_at_another_ranks_connection_is_no_cause() -> None:
    def at(rank: int, peer: int) -> Worker:
        mine = Socket(f"127.0.0.1:{4000 + rank}", f"127.0.0.1:{4000 + peer}")
        return worker(rank, (), on=Blocked("recvfrom", "socket", mine.remote, (mine,)), connections=(mine,))

    sleeps = replace(
        worker(2, ELSEWHERE, on=Blocked("clock_nanosleep", "time")),
        connections=(Socket("127.0.0.1:4002", "127.0.0.1:4001"),),
    )
    found = the_one(at(0, 2), at(1, 0), sleeps)
    assert (found.kind, found.rank, found.waiting) == ("sleeps", 2, (0, 1))


def test_a_rank_that_waits_at_a_connection_beside_a_collective_is_named_late_for_a_server_may_be_behind_it() -> None:
    def asks(quiet: float) -> list[tuple[str, str]]:
        mine = Socket("127.0.0.1:4002", "127.0.0.1:4000")
        client = worker(
            2, NATIVE, quiet=quiet, on=Blocked("recvfrom", "socket", mine.remote, (mine,)), connections=(mine,)
        )
        peer = (Socket("127.0.0.1:4000", "127.0.0.1:4002"),)
        others = (worker(0, quiet=quiet, connections=peer), worker(1, quiet=quiet))
        return [(each.kind, each.strength) for each in judged(*others, client)]

    assert asks(70.0) == [("mismatched-collective", "weak")]
    assert asks(LONG) == [("mismatched-collective", "strong")]


def test_a_loopback_address_of_another_node_is_not_a_peers() -> None:
    def alone(node: str, rank: int, peer: str) -> Answer:
        mine = Socket("127.0.0.1:4000", peer)
        on = Blocked("recvfrom", "socket", peer, (mine,))
        waits = worker(rank, ELSEWHERE, quiet=LONG, on=on, connections=(mine,))
        return Answer(node, node, NodeEvidence(node, 1, (waits,), network=node))

    found = suspects([alone("A", 0, "127.0.0.1:9"), alone("B", 1, "127.0.0.1:4000")], 1)
    assert {(each.kind, each.rank) for each in found} == {("silent-server", 0), ("silent-server", 1)}


def test_where_a_rank_is_not_seen_a_connection_that_may_be_its_own_is_no_silent_server() -> None:
    mine = Socket("10.0.0.1:4000", "10.0.0.2:4000")
    on = Blocked("recvfrom", "socket", mine.remote, (mine,))
    waits = worker(0, ELSEWHERE, quiet=LONG, on=on, connections=(mine,))
    seen = Answer("A", "A", NodeEvidence("A", 1, (waits, worker(1, quiet=LONG))))
    unseen = NodeEvidence("B", 1, (worker(2, ELSEWHERE),), blind=True)
    assert [each.kind for each in suspects([seen], 1)] == ["silent-server"]
    assert [each.kind for each in suspects([seen, Answer("B", trouble="refused")], 1)] == ["silent-node"]
    assert suspects([seen, Answer("B")], 1) == ()
    assert suspects([seen, Answer("B", "B", NodeEvidence("B", 1), workers=1)], 1) == (), "it is in another round"
    (found,) = suspects([seen, Answer("B", "B", unseen)], 1)
    assert (found.kind, found.rank, found.waiting) == ("deadlock", 2, (0, 1))


def test_where_all_ranks_are_seen_unknown_connections_matter_only_to_those_that_are_at_one() -> None:
    """As in any job of so many ranks that the connections of one are not all told."""
    assert judged(worker(0), worker(1), worker(2, BARRIER), blind=True)[0].kind == "mismatched-collective"
    assert judged(worker(0, ELSEWHERE), blind=True)[0].kind == "deadlock"
    server = worker(0, ELSEWHERE, on=Blocked("recvfrom", "socket", "10.0.0.9:80"))
    assert judged(server, worker(1), worker(2, BARRIER), blind=True) == ()


def test_who_is_only_presumed_to_wait_for_a_rank_makes_no_strong_evidence() -> None:
    server = worker(0, ELSEWHERE, on=Blocked("recvfrom", "socket", "10.0.0.9:80"))
    (found,) = judged(server, worker(1, ELSEWHERE), blind=True)
    assert (found.rank, found.strength) == (1, "weak")


def test_where_a_rank_is_not_seen_what_is_certain_of_the_others_is_told() -> None:
    silent = Answer("B", trouble="refused")
    stopped = Answer("A", "A", NodeEvidence("A", 1, (worker(0, state="T", quiet=LONG),)))
    assert {each.kind for each in suspects([stopped, silent], 1)} == {"stopped", "silent-node"}
    sent = replace(worker(0), connections=(Socket("10.0.0.1:4000", "10.0.0.2:4000", unsent=9, retries=5),))
    lost = Answer("A", "A", NodeEvidence("A", 1, (sent, worker(1, BARRIER))))
    assert {each.kind for each in suspects([lost, silent], 1)} == {"lost-route", "silent-node"}


def test_an_actor_at_the_connection_of_a_rank_that_is_not_seen_is_no_reason_to_name_one_at_rest() -> None:
    mine = Socket("10.0.0.1:4000", "10.0.0.2:4000")
    waits = worker(0, ELSEWHERE, on=Blocked("recvfrom", "socket", mine.remote, (mine,)), connections=(mine,))
    actors = of_role("actor", waits, worker(1, ELSEWHERE, on=Blocked("clock_nanosleep", "time")))
    silent = Answer("B", trouble="refused", role="learner")
    assert [each.kind for each in suspects([actors, silent], 1)] == ["silent-node"]
    alone, rests = of_role("actor", waits), of_role("evaluator", worker(2, ELSEWHERE))
    assert [each.kind for each in suspects([alone, rests, silent], 1)] == ["silent-node"]


def test_an_evaluator_at_rest_is_not_named_for_a_trainer_on_its_accelerator() -> None:
    rests = of_role("evaluator", worker(3, ELSEWHERE, on=Blocked("clock_nanosleep", "time"), quiet=240.0))
    trainers = of_role("trainer", on_a_device(0), worker(1), worker(2))
    assert suspects([trainers, rests], 1) == ()
    assert suspects([of_role("trainer", on_a_device(0, spins=240.0)), rests], 1) == ()


def test_where_all_wait_in_one_place_the_rank_whose_data_does_not_arrive_is_named() -> None:
    stuck = Socket("10.0.0.1:4000", "10.0.0.2:4000", unsent=4096, retries=5)
    found = the_one(worker(0), replace(worker(1), connections=(stuck,)))
    assert (found.kind, found.rank) == ("lost-route", 1)


def test_where_all_wait_in_one_place_and_nothing_else_is_seen_that_is_said() -> None:
    found = the_one(worker(0), worker(1))
    assert (found.kind, found.rank, found.strength) == ("standstill", None, "weak")
    assert str(found) == (
        "no rank is proven to be the cause, for 70 s: "
        "ranks 0-1: waits for another rank; all_reduce(), train.py:38 in train"
    )


def test_ranks_that_come_on_are_not_named() -> None:
    assert judged(worker(0, cpu=0.5, quiet=0.0), worker(1, cpu=0.5, quiet=0.0)) == ()
    assert judged(worker(0, quiet=2.0), worker(1, quiet=2.0)) == ()


def test_a_rank_that_has_ended_while_the_others_wait_had_fewer_steps() -> None:
    found = the_one(worker(0), Worker(1, 1, 1001, ended=0))
    assert (found.kind, found.rank) == ("uneven-steps", 1)
    ended = [Worker(rank, rank, 1000 + rank, ended=0) for rank in (1, 2)]
    found = the_one(worker(0), *ended)
    assert (found.kind, found.rank, found.strength) == ("mismatched-collective", 0, "strong"), "it had more"
    found = the_one(worker(0, in_call("recv", "src=1")), *ended)
    assert (found.rank, found.strength) == (0, "weak"), "rank 1 may owe it a message"


def test_a_node_that_does_not_answer_and_one_with_a_wrong_clock_are_named() -> None:
    found = suspects([Answer("A", trouble="refused"), Answer("B", evidence=NodeEvidence("B", 1), skew=-7.5)], 1)
    assert [(each.kind, each.node, each.rank) for each in found] == [
        ("clock-skew", "B", None),
        ("silent-node", "A", None),
    ]
    assert str(found[0]) == "node B has a wrong clock (7.5 s behind the master's)"
    assert str(found[1]) == "node A has an agent that does not answer (refused)"


@pytest.mark.parametrize("skews", [(0.0, 30.0, 0.0), (-30.0, 0.0, -30.0)])
def test_of_three_clocks_the_one_that_differs_from_the_others_is_wrong_also_where_it_is_the_masters(
    skews: tuple[float, ...],
) -> None:
    answers = [Answer(node, evidence=NodeEvidence(node, 1), skew=skew) for node, skew in zip("ABC", skews, strict=True)]
    (found,) = suspects(answers, 1)
    assert str(found) == "node B has a wrong clock (30.0 s ahead of most others')"


def test_limits_that_are_near_are_told() -> None:
    full = Disk("/dev/shm", 1 << 30, 0)
    found = judged(
        worker(0, cpu=1.0, descriptors=1000, descriptor_limit=1024),
        memory=98,
        memory_limit=100,
        processes=99,
        process_limit=100,
        disks=(full,),
    )
    assert {each.kind for each in found} == {"memory-near", "descriptors-near", "processes-near", "disk-full"}


def test_evidence_of_another_round_counts_for_nothing() -> None:
    assert suspects([Answer("A", evidence=NodeEvidence("A", 2, (worker(0), worker(1, ELSEWHERE))))], 1) == ()


def test_evidence_and_findings_are_read_as_they_were_written() -> None:
    evidence = NodeEvidence("A", 1, (worker(0), worker(1, BARRIER)))
    assert decode(NodeEvidence, encode(evidence)) == evidence
    finding = the_one(worker(0), worker(1, ELSEWHERE))
    assert decode(Finding, encode(finding)) == finding


def test_many_ranks_are_named_as_spans() -> None:
    assert ranks([0, 1, 2, 5]) == "ranks 0-2, 5"
    assert ranks([3]) == "rank 3"
    assert ranks(range(0, 40, 2)) == "ranks 0, 2, 4, 6, 8, 10, 12, 14 and 12 more"


def steps(rank: int, share: float, *, cpu: float = 0.3, switches: int = 40, on: Blocked = LOCK) -> Worker:
    """One that was looked at 20 times in 4 s, and worked at that share of the looks; else it waited in a collective."""
    at_work = round(20 * share)
    snapshots = tuple(
        Snapshot(
            at * 0.2,
            "R" if at < at_work and on is LOCK else "S",
            cpu=at * 0.2 * cpu,
            switches=at * switches // 20,
            blocked=on if at < at_work else LOCK,
            frames=ELSEWHERE if at < at_work else ALL_REDUCE,
        )
        for at in range(20)
    )
    return Worker(rank, rank, 1000 + rank, snapshots=snapshots)


def compared(*workers: Worker) -> list[tuple[str, int | None]]:
    found = stragglers([Answer("A", "hostA", NodeEvidence("A", 1, workers))], 1)
    return [(each.kind, each.rank) for each in found]


def test_a_rank_that_the_others_wait_for_in_each_step_is_slow_by_what_it_does_meanwhile() -> None:
    assert compared(steps(0, 0.1), steps(1, 0.95), steps(2, 0.2)) == [("slow-compute", 1)]
    pipe, server = Blocked("read", "pipe", "a pipe"), Blocked("recvfrom", "socket", "10.0.0.9:80")
    assert compared(steps(0, 0.1), steps(1, 0.95, on=pipe)) == [("slow-data", 1)]
    assert compared(steps(0, 0.1), steps(1, 0.95, on=server)) == [("slow-network", 1)]


def test_ranks_that_work_about_as_much_are_not_slow() -> None:
    assert compared(steps(0, 0.65), steps(1, 0.95), steps(2, 0.6)) == []
    assert compared(steps(0, 0.9), steps(1, 0.9)) == []


def test_where_the_others_take_no_steps_nobody_is_slow() -> None:
    """They wait for one thing: an evaluation, or a rank that has not begun yet."""
    assert compared(steps(0, 0.0, switches=0), steps(1, 1.0)) == []
    assert compared(steps(0, 0.05, cpu=0.002), steps(1, 1.0)) == []


def test_one_long_wait_among_the_steps_makes_nobody_slow() -> None:
    """A rank writes a checkpoint of some seconds, and the others took steps before it or take them after it."""
    waiting = steps(0, 0.1)
    for begin in (0, 4, 8, 12):
        still = tuple(
            replace(each, switches=each.switches - max(0, min(at, begin + 7) - begin) * 2)
            for at, each in enumerate(waiting.snapshots)
        )
        assert still[-1].switches - still[0].switches >= 20
        assert compared(replace(waiting, snapshots=still), steps(1, 0.95)) == []


def of_role(role: str, *workers: Worker) -> Answer:
    return Answer(role, role, NodeEvidence(role, 1, workers), role=role)


def test_an_evaluator_that_computes_all_the_time_is_not_compared_with_the_workers_and_a_slow_worker_is() -> None:
    fast, slow = (steps(0, 0.1), steps(1, 0.1)), steps(2, 0.9)
    assert stragglers([of_role("worker", *fast), of_role("evaluator", steps(3, 0.95))], 1) == ()
    (found,) = stragglers([of_role("worker", *fast, slow), of_role("evaluator", steps(3, 0.95))], 1)
    assert (found.rank, found.waiting) == (2, (0, 1))


def test_an_actor_at_rest_is_no_strong_suspect_for_learners_that_wait() -> None:
    learners, actor = of_role("learner", worker(0), worker(1)), of_role("actor", worker(2, ELSEWHERE))
    (found,) = suspects([learners, actor], 1)
    assert (found.rank, found.strength) == (2, "weak")


def test_a_learner_that_stands_still_is_named_and_the_actor_at_rest_is_not() -> None:
    learners = of_role("learner", worker(0), worker(1, ELSEWHERE))
    (found,) = suspects([learners, of_role("actor", worker(2, ELSEWHERE))], 1)
    assert (found.rank, found.waiting, found.strength) == (1, (0,), "strong")


def test_an_actor_at_rest_is_not_named_while_a_learner_has_only_just_come_to_rest() -> None:
    learners = of_role("learner", worker(0, quiet=61.0), worker(1, ELSEWHERE, quiet=1.0))
    assert suspects([learners, of_role("actor", worker(2, ELSEWHERE))], 1) == ()


def test_a_worker_at_the_connection_of_a_parameter_server_waits_for_it_also_while_another_worker_does_not() -> None:
    here = Socket("10.0.0.1:4000", "10.0.0.2:4000")
    waits = worker(0, (), on=Blocked("recvfrom", "socket", here.remote, (here,)), connections=(here,))
    server = worker(2, ELSEWHERE, connections=(Socket("10.0.0.2:4000", "10.0.0.1:4000"),))
    workers = of_role("worker", waits, worker(1, ELSEWHERE, quiet=1.0))
    (found,) = suspects([workers, of_role("ps", server)], 1)
    assert (found.rank, found.strength) == (2, "weak")


def test_a_server_at_rest_is_not_named_for_another_server_that_waits_for_a_worker() -> None:
    here = Socket("10.0.0.2:4000", "10.0.0.1:4000")
    waits = worker(3, (), on=Blocked("recvfrom", "socket", here.remote, (here,)), connections=(here,))
    evaluates = worker(0, quiet=0.0, cpu=0.9, stacks=(ELSEWHERE, EVALUATION, ALL_REDUCE[1:]) * 4)
    evaluates = replace(evaluates, connections=(Socket("10.0.0.1:4000", "10.0.0.2:4000"),))
    assert suspects([of_role("worker", evaluates), of_role("ps", worker(2, ELSEWHERE), waits)], 1) == ()
    hangs = worker(2, ELSEWHERE, state="D", on=Blocked())
    (found,) = suspects([of_role("worker", evaluates), of_role("ps", hangs, waits)], 1)
    assert (found.kind, found.rank, found.strength, found.waiting) == ("blocked-file", 2, "weak", ())


def test_a_rank_that_waits_for_whoever_connects_keeps_no_other_from_waiting_for_another_role() -> None:
    serves = worker(1, ELSEWHERE, on=Blocked("accept4", "listener"))
    (found,) = suspects([of_role("worker", worker(0), serves), of_role("ps", worker(2, ELSEWHERE))], 1)
    assert (found.rank, found.strength, found.waiting) == (2, "weak", (0,))


def test_a_worker_that_waits_for_a_parameter_server_does_not_wait_for_a_worker_that_has_ended() -> None:
    here = Socket("10.0.0.1:4000", "10.0.0.2:4000")
    waits = worker(0, (), on=Blocked("recvfrom", "socket", here.remote, (here,)), connections=(here,))
    server = worker(2, ELSEWHERE, connections=(Socket("10.0.0.2:4000", "10.0.0.1:4000"),))
    (found,) = suspects([of_role("worker", waits, Worker(1, 1, 1001, ended=0)), of_role("ps", server)], 1)
    assert (found.kind, found.rank, found.strength) == ("deadlock", 2, "weak")


def test_a_rank_is_compared_with_the_median_of_the_others() -> None:
    for seed in range(300):
        chance = random.Random(seed)
        shares = [chance.randrange(21) / 20 for _ in range(chance.randrange(2, 9))]
        slow = {
            rank
            for rank, share in enumerate(shares)
            if share >= 0.4
            and share > 1.6 * median(shares[:rank] + shares[rank + 1 :])
            and any(other <= 0.6 for at, other in enumerate(shares) if at != rank)
        }
        found = compared(*(steps(rank, share) for rank, share in enumerate(shares)))
        assert {rank for _, rank in found} == slow, f"seed {seed}"


def test_the_medians_of_many_ranks_take_one_sorting(monkeypatch: pytest.MonkeyPatch) -> None:
    """A sorting for each rank would keep the master from its lease."""
    sortings = list[int]()

    def counted(values: Iterable[float]) -> list[float]:
        sortings.append(1)
        return sorted(values)

    monkeypatch.setattr(module, "sorted", counted, raising=False)
    compared(*(steps(rank, 0.5) for rank in range(50)))
    assert sortings == [1]
    assert not hasattr(module, "median")


RECORD = Frame("/x/site-packages/torch/distributed/elastic/multiprocessing/errors/__init__.py", 355, "wrapper")
FORWARD = Frame("/x/site-packages/torch/nn/parallel/distributed.py", 1636, "forward")
ADAPTER = Frame("/x/site-packages/elastic_run/adapters/state.py", 90, "run")
BACKWARD = Frame("/x/site-packages/torch/autograd/graph.py", 841, "_engine_run_backward")
RESULT_OF = (Frame("/usr/lib/python3.11/concurrent/futures/_base.py", 451, "result"), *ELSEWHERE)


@pytest.mark.parametrize("around", [RECORD, FORWARD, ADAPTER, BACKWARD])
def test_a_stack_that_passes_through_a_framework_is_the_users(around: Frame) -> None:
    """A hook, a forward pass and all below a decorator: as the culprit, and as the one that waits."""
    stands = worker(1, (PASSES, NATIVE[0], around, NATIVE[1]))
    waits = [worker(rank, (*ALL_REDUCE[:2], around, ALL_REDUCE[2])) for rank in (0, 2)]
    found = the_one(waits[0], stands, waits[1])
    assert (found.kind, found.rank, found.waiting) == ("deadlock", 1, (0, 2))
    computes = tuple((Frame("/home/me/train.py", 90 + at, f"layer{at}"), around, *ELSEWHERE) for at in range(12))
    assert judged(waits[0], worker(1, quiet=0.0, cpu=0.9, stacks=computes)) == ()


def test_a_wait_in_native_code_is_no_cause_while_another_rank_is_elsewhere() -> None:
    """`work.wait()` of an operation that was begun before shows no Python call."""
    hidden = worker(1, NATIVE)
    found = the_one(worker(0), hidden, worker(2, EVALUATION, on=SLEEP))
    assert (found.kind, found.rank, found.waiting) == ("sleeps", 2, (0, 1))
    assert judged(worker(0), hidden, worker(2, EVALUATION, on=replace(SLEEP, ends=15.0))) == ()
    assert the_one(worker(0), hidden, worker(2)).kind == "standstill", "a pool of native threads may read or write"
    for quiet, strength in ((70.0, "weak"), (LONG, "strong")):
        ranks = (worker(rank, stack, quiet=quiet) for rank, stack in enumerate((NATIVE, NATIVE, EVALUATION)))
        found = the_one(*ranks)
        assert (found.kind, found.rank, found.strength) == ("mismatched-collective", 2, strength)


@pytest.mark.parametrize(
    "waits",
    [
        worker(2, ELSEWHERE, on=replace(SLEEP, ends=1.0), woken=60),  # for the file that rank 0 will write
        worker(2, ELSEWHERE, on=Blocked("flock", "file", "/data/lock")),  # which rank 0 holds
        worker(2, ELSEWHERE),
    ],
)
def test_a_chain_of_waits_ends_at_a_rank_that_is_busy_and_not_at_one_that_stands_still(waits: Worker) -> None:
    busy = worker(0, quiet=0.0, cpu=0.9, stacks=(ELSEWHERE, EVALUATION, ALL_REDUCE[1:]) * 4)
    for patience in (70.0, LONG):
        assert judged(busy, worker(1, BARRIER, quiet=patience), replace(waits, quiet=patience)) == ()
    stopped = worker(3, ELSEWHERE, state="T")
    assert judged(busy, worker(1, BARRIER), waits, stopped) == (), "it may be resumed"
    assert the_one(busy, worker(1, BARRIER, quiet=LONG), waits, stopped).kind == "stopped"


def test_the_place_of_a_rank_is_the_thread_that_takes_part_and_not_the_main_threads_join() -> None:
    trains = [with_threads(worker(rank, JOIN), thread(ALL_REDUCE)) for rank in (0, 2)]
    found = the_one(trains[0], with_threads(worker(1, JOIN), thread(ELSEWHERE)), trains[1])
    assert (found.kind, found.rank, found.waiting_where) == ("deadlock", 1, "all_reduce(), train.py:38 in train")
    asyncio = (Frame("/usr/lib/python3.11/asyncio/base_events.py", 1900, "_run_once"), *ELSEWHERE)
    loop = worker(1, asyncio, on=Blocked("epoll_wait", "local socket"))
    assert the_one(trains[0], with_threads(loop, thread(ALL_REDUCE))).kind == "standstill"
    found = the_one(trains[0], with_threads(worker(1, RESULT_OF), thread(ELSEWHERE, on=Blocked("recvfrom", "socket"))))
    assert found.kind == "standstill", "the thread's server may answer"
    assert "waits for a server" in found.where


def test_the_place_of_a_rank_is_the_process_that_trains_where_a_script_of_the_shell_waits_for_it() -> None:
    shell = worker(0, (), on=Blocked("wait4", "child"))
    trains = [with_threads(replace(shell, rank=rank), thread(ALL_REDUCE, child=True)) for rank in (0, 2)]
    stands = with_threads(replace(shell, rank=1), thread(ELSEWHERE, child=True))
    found = the_one(trains[0], stands, trains[1])
    assert (found.kind, found.rank, found.where) == ("deadlock", 1, "wait(), train.py:12 in log")
    stopped = with_threads(replace(shell, rank=1), thread(ELSEWHERE, child=True, state="T"))
    assert the_one(trains[0], stopped, trains[1]).kind == "standstill"
    found = the_one(replace(trains[0], quiet=LONG), stopped, trains[1])
    assert (found.kind, found.rank, found.strength) == ("stopped", 1, "certain")


@pytest.mark.parametrize("ends", [replace(LOCK, ends=1.0), replace(SLEEP, ends=0.5), Blocked("poll", "pipe", ends=5.0)])
def test_a_wait_that_another_thread_may_end_is_no_proof(ends: Blocked) -> None:
    """A thread fills the queue now and then; when it has not for long, the rank is named."""
    waits = with_threads(worker(1, ELSEWHERE), thread(EVALUATION, on=ends))
    assert the_one(worker(0), waits).kind == "standstill"
    (found,) = judged(worker(0, quiet=LONG), replace(waits, quiet=LONG))
    assert (found.rank, found.strength) == (1, "strong")


def test_a_timer_of_the_same_process_may_end_a_wait() -> None:
    timer = (PASSES, Frame("/usr/lib/python3.11/threading.py", 1376, "run"))
    waits = worker(1, ELSEWHERE)
    assert the_one(worker(0), with_threads(waits, thread(timer, on=replace(LOCK, ends=9.0)))).kind == "standstill"
    assert the_one(worker(0), with_threads(waits, thread(timer))).kind == "deadlock", "it waits for its own work"


def test_a_thread_that_computes_makes_its_rank_busy() -> None:
    first, last = (ThreadState(7, False, "R", cpu, Blocked(), EVALUATION) for cpu in (0.0, 0.2))
    waits = worker(1, ELSEWHERE)
    looks = (replace(waits.snapshots[0], threads=(first,)), *waits.snapshots[1:-1])
    looks = (*looks, replace(waits.snapshots[-1], threads=(last,)))
    assert judged(worker(0, quiet=LONG), replace(waits, snapshots=looks, quiet=LONG)) == ()


def test_of_several_ranks_that_ask_beside_others_that_wait_each_may_be_right() -> None:
    nap = replace(SLEEP, ends=0.2)
    asks = [worker(rank, ELSEWHERE, quiet=LONG, on=nap, woken=300) for rank in (1, 2)]
    assert {each.strength for each in judged(*(worker(rank, quiet=LONG) for rank in (0, 3)), *asks)} == {"weak"}
    retries = last_look(worker(1, ELSEWHERE, quiet=0.4, on=nap), output=40, switches=2)
    found = judged(worker(0, quiet=610.0), retries, replace(asks[1], quiet=610.0))
    assert {(each.kind, each.strength) for each in found} == {("sleeps", "weak")}, "one may serve, and one knock"


def test_of_ranks_that_stand_still_in_different_places_only_the_proven_one_is_named() -> None:
    pipe = worker(2, (Frame("/home/me/train.py", 70, "read"),), on=Blocked("read", "pipe", "/data/fifo"), quiet=LONG)
    server = worker(1, NATIVE, on=Blocked("recvfrom", "socket", "10.0.0.9:80"), quiet=LONG)
    for other, strengths in ((server, {1: "weak", 2: "weak"}), (worker(1, ELSEWHERE), {1: "strong", 2: "weak"})):
        found = judged(worker(0, quiet=LONG), other, pipe)
        assert {each.rank: each.strength for each in found} == strengths
    same = judged(worker(0, quiet=LONG), server, replace(server, rank=2, pid=1002))
    assert {each.strength for each in same} == {"strong"}, "a server that both ask"


def test_a_wait_of_which_the_kernel_tells_no_more_is_told_late() -> None:
    event = worker(1, NATIVE, on=Blocked("epoll_wait"))
    assert the_one(worker(0), event, worker(2)).kind == "standstill"
    found = the_one(worker(0, quiet=LONG), replace(event, quiet=LONG), worker(2, quiet=LONG))
    assert (found.kind, found.rank, found.strength) == ("sleeps", 1, "strong")


def test_one_long_sleep_that_ends_is_no_fault_and_short_ones_for_long_are() -> None:
    once = worker(1, ELSEWHERE, quiet=LONG, on=replace(SLEEP, ends=15.0))
    assert judged(worker(0, quiet=LONG), once) == ()
    assert the_one(worker(0, quiet=LONG), replace(once, woken=300)).kind == "sleeps"


def test_who_sleeps_in_one_place_again_and_again_is_told_very_late_though_it_prints() -> None:
    nap = replace(SLEEP, ends=1.5)
    retries = last_look(worker(1, ELSEWHERE, quiet=0.4, on=nap), output=40, switches=2)
    assert judged(worker(0, quiet=590.0), retries) == ()
    found = the_one(worker(0, quiet=610.0), retries)
    assert (found.kind, found.rank, found.strength, found.waiting) == ("sleeps", 1, "strong", (0,))
    loads = last_look(retries, moved=1 << 20)
    evaluates = replace(retries, snapshots=(replace(retries.snapshots[0], frames=EVALUATION), *retries.snapshots[1:]))
    works = last_look(retries, child_cpu=0.5)
    for innocent in (loads, evaluates, works):
        assert judged(worker(0, quiet=610.0), innocent) == ()


def test_a_process_that_sleeps_again_and_again_is_told_late_and_one_long_sleep_of_it_is_not() -> None:
    def awaited(seconds: float) -> Worker:
        parent = worker(1, RUN, quiet=LONG, on=Blocked("wait4", "child"), children=(Child(7, "python3", "S", 0.0),))
        return with_threads(parent, thread(ELSEWHERE, replace(SLEEP, ends=seconds), child=True))

    found = the_one(worker(0, quiet=LONG), awaited(1.0))
    assert (found.kind, found.rank, found.strength) == ("sleeps", 1, "strong")
    assert judged(worker(0, quiet=LONG), awaited(30.0)) == ()


def test_what_all_ranks_wait_for_by_design_is_weak_evidence_at_most() -> None:
    server = Blocked("recvfrom", "socket", "10.0.0.9:80")
    found = judged(*(worker(rank, ELSEWHERE, quiet=LONG, on=server) for rank in range(3)))
    assert {each.strength for each in found} == {"weak"}
    assert the_one(worker(0, ELSEWHERE, on=SLEEP)).strength == "weak"
    assert the_one(worker(0, ELSEWHERE)).strength == "strong"
    served = replace(server, sockets=(Socket("127.0.0.1:4001", "127.0.0.1:4000"),))
    asks = [worker(rank, ELSEWHERE, quiet=LONG, on=served) for rank in (1, 2)]  # a queue that rank 0 serves
    serves = worker(0, ELSEWHERE, quiet=LONG, on=server, connections=(Socket("127.0.0.1:4000", "127.0.0.1:4001"),))
    assert the_one(serves, *asks).strength == "weak"
    locks = [worker(rank, ELSEWHERE, quiet=LONG, on=Blocked("flock", "file", "/data/lock")) for rank in (0, 1)]
    found = the_one(*locks, worker(2, ELSEWHERE, quiet=LONG, on=server))
    assert (found.kind, found.rank, found.strength, found.waiting) == ("silent-server", 2, "strong", (0, 1))


def test_a_rank_that_does_not_end_when_the_others_have_is_named() -> None:
    uploads = worker(0, ELSEWHERE, quiet=LONG, on=Blocked("recvfrom", "socket", "10.0.0.9:80"))
    found = the_one(uploads, Worker(1, 1, 1001, ended=0), Worker(2, 2, 1002, ended=0))
    assert (found.kind, found.rank, found.strength) == ("silent-server", 0, "strong")
    polls = [worker(rank, ELSEWHERE, quiet=LONG, on=replace(SLEEP, ends=0.2), woken=300) for rank in (0, 1)]
    found = the_one(*polls, Worker(2, 2, 1002, ended=0))
    assert (found.kind, found.rank, found.strength) == ("uneven-steps", 2, "strong")
    (found,) = judged(polls[0], Worker(1, 1, 1001, ended=0), Worker(2, 2, 1002, ended=0))
    assert (found.kind, found.strength) == ("sleeps", "weak"), "it may wait for what one that has ended owes it"


def test_where_most_ask_for_something_in_one_place_the_one_that_is_elsewhere_is_named() -> None:
    asks = (EVALUATION, (Frame("/home/me/train.py", 91, "metric"), *NATIVE))
    nap = replace(SLEEP, ends=0.2)
    polls = [worker(rank, stack, quiet=LONG, on=nap, woken=300) for rank, stack in enumerate(asks)]
    found = the_one(*(last_look(each, moved=99, switches=9) for each in polls), worker(2, quiet=LONG))
    assert (found.kind, found.rank, found.strength, found.waiting) == ("mismatched-collective", 2, "strong", (0, 1))
    assert {each.rank for each in judged(polls[0], *(worker(rank, quiet=LONG) for rank in (1, 2)))} == {0}


def test_an_event_loop_may_wait_for_a_thread_in_native_code_that_waits_for_other_ranks() -> None:
    ranks = [worker(rank, LOOP, quiet=LONG, on=Blocked("epoll_wait", "local socket")) for rank in range(3)]
    native = thread((Frame("/usr/lib/python3.11/concurrent/futures/thread.py", 58, "_WorkItem.run"),))
    found = the_one(ranks[0], *(with_threads(each, native) for each in ranks[1:]))
    assert (found.kind, found.rank, found.strength, found.waiting) == ("deadlock", 0, "strong", (1, 2))


def test_a_rank_that_waits_for_a_debugger_to_connect_is_named_when_it_has_for_long() -> None:
    listens = worker(1, ELSEWHERE, quiet=LONG, on=Blocked("accept4", "listener"))
    assert the_one(worker(0), replace(listens, quiet=70.0)).kind == "standstill"
    assert the_one(worker(0, quiet=LONG), listens).kind == "silent-server"


def test_a_collective_that_a_pool_of_threads_runs_without_a_call_of_the_script_is_one() -> None:
    pool = Frame("/usr/lib/python3.11/concurrent/futures/thread.py", 83, "_worker")
    ranks = [worker(rank, LOOP, quiet=LONG, on=Blocked("epoll_wait", "local socket")) for rank in range(3)]
    found = the_one(
        with_threads(ranks[0], thread((PASSES, pool))),
        *(with_threads(each, thread((ALL_REDUCE[0], pool))) for each in ranks[1:]),
    )
    assert (found.kind, found.rank, found.waiting) == ("deadlock", 0, (1, 2))


def test_without_python_stacks_nobody_is_named_but_by_the_kernels_proof() -> None:
    bare = [worker(rank, ()) for rank in range(3)]
    for on in (LOCK, SLEEP, Blocked("recvfrom", "socket", "10.0.0.9:80"), Blocked("read", "pipe"), Blocked("flock")):
        found = judged(*bare[:2], *(replace(each, rank=2) for each in [worker(2, (), on=on, quiet=10 * LONG)]))
        assert [(each.kind, each.rank) for each in found] in ([("standstill", None)], [])
    (found,) = judged(*bare)
    assert "waits for another rank or a lock: there is no Python stack" in found.where
    bare = [worker(rank, (), quiet=LONG) for rank in range(3)]
    for state in "TD":
        (found,) = judged(*bare[:2], worker(2, (), state=state, on=Blocked()))
        assert (found.rank, found.strength in ("certain", "strong")) == (2, True)
    loader = Child(77, "python3", "T", 0.0)
    polls = worker(2, (), on=Blocked("poll", "local socket"), children=(loader,))
    (found,) = judged(*bare[:2], polls)
    assert (found.kind, found.rank) == ("stopped", 2)


@pytest.mark.parametrize(
    ("channel", "on", "kind"),
    [
        ("do_freezer_trap", Blocked(), "stopped"),
        ("hrtimer_nanosleep", SLEEP, "stopped"),
        ("mem_cgroup_oom_synchronize", Blocked(), "memory-near"),
    ],
)
def test_what_a_control_group_has_frozen_keeps_no_interpreters_lock(channel: str, on: Blocked, kind: str) -> None:
    frozen = worker(1, ELSEWHERE, state="D", on=on)
    looks = tuple(replace(each, channel=channel, holds_gil=True) for each in frozen.snapshots)
    found = the_one(worker(0, quiet=LONG), replace(frozen, snapshots=looks))
    assert (found.kind, found.rank, found.strength) == (kind, 1, "certain")


def test_who_waits_in_an_operation_that_has_a_root_may_be_right_and_who_has_left_it_too() -> None:
    broadcast = (replace(BARRIER[0], function="broadcast"), *BARRIER[1:])
    for stacks in ((ALL_REDUCE, ALL_REDUCE, broadcast), (broadcast, broadcast, ALL_REDUCE)):
        found = the_one(*(worker(rank, stack) for rank, stack in enumerate(stacks)))
        assert (found.kind, found.strength) == ("mismatched-collective", "weak")


def in_call(function: str, arguments: str) -> tuple[Frame, ...]:
    return (replace(BARRIER[0], function=function, arguments=arguments), *BARRIER[1:])


@pytest.mark.parametrize(
    ("stacks", "found"),
    [
        # Two wait for one that has left the root's operation out; one waits for a root that is with the others.
        ((ALL_REDUCE, *[in_call("broadcast", "src=0")] * 2), ("mismatched-collective", 0, "strong")),
        ((ALL_REDUCE, ALL_REDUCE, in_call("recv", "src=1")), ("mismatched-collective", 2, "strong")),
        # Those two may have sent what the third does not take.
        ((*[in_call("reduce", "dst=0")] * 2, ALL_REDUCE), ("mismatched-collective", 2, "weak")),
        ((ALL_REDUCE, *[in_call("broadcast", "src=0, group=...")] * 2), ("mismatched-collective", 0, "weak")),
        ((in_call("all_reduce", "group=..."), BARRIER, BARRIER), ("mismatched-collective", 0, "weak")),
        ((ALL_REDUCE, *[in_call("new_group", "ranks=[1, 2]")] * 2), ("mismatched-collective", 0, "weak")),
        # Each of two takes itself for the root, and the third may have left either's operation.
        (
            (in_call("broadcast", "src=0"), in_call("broadcast", "src=1"), BARRIER),
            ("mismatched-collective", 0, "weak"),
        ),
        # Their root would have sent it to the third, which is in a later operation.
        (
            (in_call("broadcast", "src=0"), *[in_call("broadcast", "src=1")] * 2),
            ("mismatched-collective", 0, "weak"),
        ),
        # Nobody sends; tags differ; two take each other for the root.
        ([in_call("recv", f"src={(rank - 1) % 3}") for rank in range(3)], ("mismatched-messages", 0, "strong")),
        (
            (ALL_REDUCE, in_call("send", "dst=2, tag=4"), in_call("recv", "src=1, tag=5")),
            ("mismatched-messages", 1, "strong"),
        ),
        (
            (ALL_REDUCE, in_call("broadcast", "src=2"), in_call("broadcast", "src=1")),
            ("mismatched-messages", 1, "strong"),
        ),
        # Each waits for the next one, and the last leaves the message out.
        (
            (in_call("recv", "src=2"), ALL_REDUCE, in_call("recv", "src=1")),
            ("mismatched-collective", 1, "strong"),
        ),
        # One has another root in mind than the others.
        (
            (in_call("gather", "dst=2"), in_call("gather", "dst=2"), in_call("gather", "dst=1")),
            ("mismatched-collective", 2, "strong"),
        ),
        (
            (in_call("gather", "dst=0"), in_call("gather", "dst=2"), in_call("gather", "dst=0")),
            ("mismatched-collective", 1, "strong"),
        ),
    ],
)
def test_what_an_operation_was_given_says_who_waits_for_whom(
    stacks: Iterable[tuple[Frame, ...]], found: tuple[str, int, str]
) -> None:
    one = the_one(*(worker(rank, stack) for rank, stack in enumerate(stacks)))
    assert (one.kind, one.rank, one.strength) == found


def test_a_circle_is_one_whatever_the_others_do_but_not_where_another_thread_may_send() -> None:
    circle = worker(1, in_call("recv", "src=2")), worker(2, in_call("recv", "src=1"))
    for other in (worker(0, NATIVE), worker(0, EVALUATION, cpu=0.9, quiet=0.0)):
        found = the_one(other, *circle)
        assert (found.kind, found.rank, found.waiting, found.strength) == ("mismatched-messages", 1, (2,), "strong")
    ring = [worker(rank, in_call("recv", f"src={(rank - 1) % 3}")) for rank in range(3)]
    assert the_one(*ring).waiting_where == "recv(), train.py:41 in train"
    sends = ThreadState(7, False, "S", frames=NATIVE)
    looks = tuple(replace(each, threads=(sends,)) for each in circle[0].snapshots)
    assert judged(worker(0, EVALUATION, cpu=0.9, quiet=0.0), replace(circle[0], snapshots=looks), circle[1]) == ()


@pytest.mark.parametrize(
    "stacks",
    [
        (in_call("send", "dst=1"), in_call("recv", "src=0")),  # it is on its way
        (in_call("gather", "dst=0, group=..."), in_call("gather", "dst=1, group=..."), in_call("gather", "dst=0")),
        (in_call("gather", "dst=0"), in_call("gather", "dst=1")),  # either may be wrong
        [
            in_call("new_group", "ranks=[0, 1]"),
            in_call("new_group", "ranks=[1, 2]"),
            in_call("new_group", "ranks=[0, 1]"),
        ],
    ],
)
def test_calls_that_may_fit_together_accuse_nobody(stacks: Iterable[tuple[Frame, ...]]) -> None:
    found = judged(*(worker(rank, stack) for rank, stack in enumerate(stacks)))
    assert not [each for each in found if each.strength != "weak"], found


@pytest.mark.parametrize(
    "innocent",
    [
        worker(1, RUN, on=Blocked("wait4", "child"), children=(Child(7, "aws", "S", 0.0, blocked=LOCK),)),
        worker(
            1,
            RUN,
            on=Blocked("wait4", "child"),
            children=(Child(7, "curl", "S", 0.0, blocked=Blocked("poll", "local socket")),),
        ),
        worker(1, RUN, on=Blocked("wait4", "child"), children=(Child(6, "git", "Z", 0.0), Child(7, "cp", "D", 0.0))),
        worker(1, (Frame("/x/site-packages/pyarrow/parquet/core.py", 9, "read"), *NATIVE)),
        worker(
            1,
            (Frame("/usr/lib/python3.11/asyncio/base_events.py", 9, "run"), *NATIVE),
            on=Blocked("epoll_wait", "local socket"),
        ),
        worker(1, NATIVE, on=Blocked("select", "terminal", "/dev/pts/3")),
        worker(1, ELSEWHERE, on=replace(LOCK, ends=830.0)),
        worker(
            1,
            (Frame("/x/site-packages/torch/distributed/checkpoint/filesystem.py", 9, "_write_files"), *NATIVE),
            on=Blocked("write", "file", "/mnt/x"),
        ),
        with_threads(worker(1, JOIN), thread(EVALUATION, on=Blocked("poll", "listener"))),
    ],
)
def test_what_somebody_outside_may_end_is_no_proof_at_the_first_look(innocent: Worker) -> None:
    assert [each.kind for each in judged(worker(0), innocent, worker(2))] in (["standstill"], [])
    assert {each.strength for each in judged(replace(innocent, rank=0))} <= {"weak"}


def test_a_file_system_that_wakes_a_rank_up_answers() -> None:
    maps = worker(1, NATIVE, state="D", on=Blocked())
    assert the_one(worker(0), maps).kind == "blocked-file"
    last = replace(maps.snapshots[-1], switches=20)
    assert judged(worker(0), replace(maps, snapshots=(*maps.snapshots[:-1], last))) == ()


def test_a_lock_on_a_file_whose_holder_is_not_known_may_be_held_by_a_rank_that_waits() -> None:
    locks = worker(0, ELSEWHERE, quiet=LONG, on=Blocked("fcntl", "file", "/data/lock"))
    found = the_one(locks, worker(1, quiet=LONG), worker(2, quiet=LONG))
    assert (found.kind, found.rank, found.strength) == ("file-lock", 0, "weak")


def behind(rank: int, holder: int, **more: object) -> Worker:
    """One that waits for the lock on a file which that rank's process holds."""
    on = Blocked("flock", "file", f"/data/{rank}.lock", holders=(1000 + holder,))
    return worker(rank, NATIVE, on=on, **more)  # pyright: ignore[reportArgumentType]


def test_ranks_that_hold_the_locks_on_files_for_which_they_wait_in_a_circle_are_named_and_not_who_waits_for_them() -> (
    None
):
    found = the_one(behind(0, 2), worker(1), behind(2, 0))
    assert (found.kind, found.rank, found.strength, found.waiting) == ("file-lock", 0, "strong", (2,))
    for holder in (7, 2):  # a process of somebody else's, and its own, which another thread may use
        told = the_one(behind(0, 2), worker(1), behind(2, holder))
        assert (told.kind, told.rank) == ("standstill", None)
    thread_works = with_threads(behind(2, 0), thread(EVALUATION))
    assert the_one(behind(0, 2), worker(1), thread_works).kind == "standstill", "it may give the lock back"


def test_who_waits_in_a_collective_with_the_lock_that_another_rank_waits_for_before_it_is_named() -> None:
    found = the_one(worker(0, BARRIER), behind(1, 0), worker(2, BARRIER))
    assert (found.kind, found.rank, found.strength, found.waiting) == ("mismatched-messages", 0, "strong", (1,))
    found = the_one(worker(0, BARRIER), behind(1, 2), behind(2, 0))
    assert (found.rank, found.waiting) == (0, (1, 2))
    for quiet in (70.0, LONG):  # the group may be without the waiting rank
        group = (replace(BARRIER[0], arguments="group=..."), *BARRIER[1:])
        ranks = worker(0, group, quiet=quiet), behind(1, 0, quiet=quiet), worker(2, BARRIER, quiet=quiet)
        assert not [each for each in judged(*ranks) if each.strength != "weak"]


def test_a_rank_behind_a_lock_waits_for_the_rank_that_holds_it_whatever_that_one_does() -> None:
    asks = worker(1, ELSEWHERE, on=replace(SLEEP, ends=0.3), woken=300, quiet=LONG)
    found = the_one(worker(0, quiet=LONG), asks, behind(2, 1, quiet=LONG))
    assert (found.kind, found.rank, found.strength, found.waiting) == ("sleeps", 1, "strong", (0, 2))
    works = worker(1, quiet=0.0, cpu=0.9, stacks=(ELSEWHERE, EVALUATION, ALL_REDUCE[1:]) * 4)
    assert judged(worker(0, quiet=LONG), works, behind(2, 1, quiet=LONG)) == ()
    program = Child(1077, "flock", "S", 0.0, blocked=behind(2, 1).blocked)
    runs = worker(2, RUN, on=Blocked("wait4", "child"), children=(program,), quiet=LONG)
    assert judged(worker(0, quiet=LONG), works, runs) == ()
    copies = replace(asks, children=(Child(1078, "flock", "S", 0.0),))
    found = the_one(worker(0, quiet=LONG), copies, behind(2, 78, quiet=LONG))
    assert (found.rank, found.waiting) == (1, (0, 2)), "a process of its own holds it"


def joined(*groups: tuple[int, ...]) -> list[tuple[Socket, ...]]:
    """The connections of three ranks, of which rank 0 has a store as well, in process groups of gloo."""
    found: list[list[Socket]] = [[], [], []]

    def connect(caller: int, called: int, port: int) -> None:
        ends = f"127.0.0.1:{port + 10 + 3 * caller + called}", f"127.0.0.1:{port + called}"
        found[caller].append(Socket(*ends))
        found[called].append(Socket(*reversed(ends)))

    def listen(rank: int, port: int) -> None:
        found[rank].append(Socket(f"0.0.0.0:{port + rank}", "0.0.0.0:0", listens=True))

    listen(0, 3000)
    for rank in range(3):
        connect(rank, 0, 3000)
    for number, members in enumerate(groups):
        for at, rank in enumerate(members):
            listen(rank, 4000 + 100 * number)
            for called in members[:at]:
                connect(rank, called, 4000 + 100 * number)
    return [tuple(each) for each in found]


@pytest.mark.parametrize(
    ("groups", "strength"),
    [
        (((0, 1, 2), (2, 0, 1)), "strong"),
        (((0, 1, 2), (0, 1), (1, 2), (0, 2)), "weak"),
        (((0, 1, 2), (1, 2)), "weak"),
        (((0, 1, 2),), "strong"),
        ((), "weak"),
    ],
)
def test_a_group_that_was_given_is_one_of_all_ranks_where_connections_tell_of_no_other(
    groups: tuple[tuple[int, ...], ...], strength: str
) -> None:
    for given in (ALL_REDUCE, in_call("send", "dst=1")):
        stacks = given, in_call("all_reduce", "group=..."), given
        ranks = (replace(worker(at, stack), connections=joined(*groups)[at]) for at, stack in enumerate(stacks))
        found = the_one(*ranks)
        assert (found.kind, found.rank, found.strength) == ("mismatched-collective", 1, strength)
    busy = with_threads(worker(1, in_call("all_reduce", "group=...")), thread(EVALUATION))
    found = the_one(*(replace(each, connections=joined(*groups)[each.rank]) for each in (worker(0), busy, worker(2))))
    assert found.strength == "weak", "its other thread may be about to come"
