"""Ranks that wait for parameter servers: what is told of the servers, and that no rank is accused for it."""

from dataclasses import replace

import pytest

from elastic_run.master.diagnosis.evidence import Answer, Blocked, Frame, NodeEvidence, ThreadState, Worker
from elastic_run.master.diagnosis.findings import Finding
from elastic_run.master.diagnosis.suspects import suspects
from elastic_run.master.machine.parameter_servers import RankWait, ServerMeasure, ServerReport, ServerState

from .looked_at import ELSEWHERE, LONG, NATIVE, worker

CLIENT = "/x/site-packages/elastic_run/adapters/servers/client.py"
PULLS = (
    Frame(CLIENT, 238, "_wait_turn"),
    Frame("/x/site-packages/elastic_run/adapters/servers/session.py", 190, "pull"),
    Frame("/x/site-packages/elastic_run/adapters/torch/embedding.py", 80, "forward"),
    Frame("/home/me/train.py", 12, "train"),
)
PUSHES = (*PULLS[:1], Frame("/x/site-packages/elastic_run/adapters/client/shards.py", 80, "done"), *NATIVE)
STARTS = (Frame("/x/site-packages/elastic_run/adapters/client/channel.py", 120, "receive"), *PULLS[1:])
SOCKET = Blocked("poll", "local socket")


def waits(
    rank: int,
    *servers: int,
    stack: tuple[Frame, ...] = PULLS,
    seconds: float = 61.0,
    quiet: float = 70.0,
    state: str = "S",
) -> Worker:
    told = RankWait(rank, servers, seconds)
    return worker(rank, stack, state=state, quiet=quiet, on=SOCKET, servers=told)


def judged(
    *workers: Worker, servers: tuple[ServerReport, ...] = (), other: tuple[ServerReport, ...] = ()
) -> tuple[Finding, ...]:
    answers = [Answer("A", "", NodeEvidence("A", 1, workers, servers=servers))]
    return suspects([*answers, Answer("B", "", NodeEvidence("B", 1, servers=other))], 1)


@pytest.mark.parametrize(
    ("state", "strength", "words"),
    [
        ("stopped", "certain", "it is stopped by a signal (SIGSTOP, a debugger or a freezer)"),
        ("silent", "strong", "it has not answered its agent for 20 s, and does nothing"),
        ("works", "weak", "it works, and has not answered its agent for 20 s"),
        ("starting", "strong", "it is being started, for 20 s"),
        ("answers", "weak", "it works, and answers its agent"),
    ],
)
def test_the_server_is_the_cause_as_far_as_its_agent_proves_it(state: ServerState, strength: str, words: str) -> None:
    (found,) = judged(waits(0, 1), waits(1, 1), other=(ServerReport(1, "x", state, 20.0),))
    assert (found.kind, found.rank, found.server, found.node) == ("parameter-server", None, 1, "B")
    assert found.strength == strength
    assert str(found) == (
        f"parameter server 1 on node B keeps workers waiting ({words}), for 61 s; "
        "ranks 0-1 wait in forward(), train.py:12 in train"
    )


def test_a_rank_whose_thread_waits_for_a_server_is_not_accused() -> None:
    queue = (Frame("/usr/lib/python3.11/queue.py", 171, "get"), Frame("/home/me/train.py", 30, "next_batch"))
    main = worker(0, queue, servers=RankWait(0, (1,), 61.0))
    looks = tuple(replace(each, threads=(ThreadState(7, False, "S", 0.0, SOCKET, PULLS),)) for each in main.snapshots)
    found = judged(replace(main, snapshots=looks), worker(1), other=(ServerReport(1, "x", "stopped", 20.0),))
    assert [(each.kind, each.rank, each.server, each.strength) for each in found] == [
        ("parameter-server", None, 1, "certain")
    ]


def test_a_rank_that_waits_for_slower_ones_waits_for_no_server() -> None:
    clock = Frame("/x/site-packages/elastic_run/adapters/servers/step_clock.py", 90, "await_step")
    queue = (Frame("/usr/lib/python3.11/threading.py", 320, "wait"), Frame("/home/me/train.py", 30, "next_batch"))
    held = [worker(rank, (clock, *PULLS[1:]), on=SOCKET) for rank in (0, 1)]
    (found,) = judged(*held, worker(2, queue))
    assert found.rank == 2


def test_one_that_has_ended_is_told_and_one_of_which_nobody_tells_is_not_accused() -> None:
    (ended,) = judged(waits(0, 1), other=(ServerReport(1),))
    assert ended.strength == "strong" and "it has ended, and another one is to be started" in str(ended)
    (unknown,) = judged(waits(0, 1))
    assert unknown.strength == "weak" and str(unknown).startswith("parameter server 1 keeps workers waiting (no agent")


def test_a_server_that_waits_for_its_backup_is_not_the_cause() -> None:
    mine = ServerReport(0, "a", "answers", measure=ServerMeasure(awaits=(1,)))
    (found,) = judged(waits(0, 0), waits(1, 0, 1), servers=(mine,), other=(ServerReport(1, "b", "stopped", 9.0),))
    assert (found.server, found.strength, found.waiting) == (1, "certain", (0, 1))
    assert "; server 0 cannot answer before it does" in found.where


def test_servers_that_wait_for_each_other_are_both_told_on_weak_evidence() -> None:
    pair = (
        ServerReport(0, "a", "answers", measure=ServerMeasure(awaits=(1,))),
        ServerReport(1, "b", "answers", measure=ServerMeasure(awaits=(0,))),
    )
    found = judged(waits(0, 0, 1), servers=pair)
    assert [(each.server, each.strength) for each in found] == [(0, "weak"), (1, "weak")]


@pytest.mark.parametrize("quiet", [70.0, LONG, 10 * LONG])
@pytest.mark.parametrize(
    "others",
    [
        (waits(1, 1, stack=PUSHES),),
        (waits(1, 1, stack=PUSHES), waits(2, 1)),
        (worker(1), worker(2)),
        (worker(1, ELSEWHERE),),
        (worker(1), worker(2, ELSEWHERE)),
        (worker(1, ended=0, snapshots=()),),
    ],
)
def test_no_rank_is_accused_while_one_waits_for_a_server(others: tuple[Worker, ...], quiet: float) -> None:
    found = judged(waits(0, 1, quiet=quiet), *others, other=(ServerReport(1, "x", "answers"),))
    assert [(each.kind, each.rank) for each in found] == [("parameter-server", None)]


def test_what_the_kernel_proves_of_a_rank_is_still_told() -> None:
    found = judged(waits(0, 1, quiet=LONG), worker(1, quiet=LONG), worker(2, ELSEWHERE, state="T", quiet=LONG))
    assert [(each.kind, each.rank) for each in found] == [("stopped", 2), ("parameter-server", None)]
    (found,) = judged(waits(0, 1, state="T", quiet=LONG), worker(1, quiet=LONG))
    assert (found.kind, found.rank) == ("stopped", 0)


def test_a_wait_that_is_short_or_not_told_of_accuses_nobody() -> None:
    assert judged(waits(0, 1, seconds=2.0), worker(1), other=(ServerReport(1, "x", "stopped"),)) == ()
    assert judged(worker(0, PULLS, on=SOCKET), worker(1, PUSHES, on=SOCKET)) == ()


def test_without_a_stack_the_workers_word_counts() -> None:
    (found,) = judged(waits(0, 1, stack=()), other=(ServerReport(1, "x", "stopped"),))
    assert (found.kind, found.server) == ("parameter-server", 1)


def test_a_checkout_of_this_package_is_not_the_script() -> None:
    stack = tuple(
        Frame(each.file.replace("/x/site-packages", "/home/me/src"), each.line, each.function) for each in PULLS
    )
    assert judged(waits(0, 1, stack=stack), waits(1, 1, stack=PUSHES)) != ()
    assert judged(worker(0, stack, on=SOCKET), worker(1, PUSHES, on=SOCKET)) == ()


def test_who_waits_for_the_first_table_waits_for_those_that_are_being_started() -> None:
    here = (ServerReport(0, "a", "answers"), ServerReport(1, "b", "starting", 70.0))
    (found,) = judged(waits(0, stack=STARTS), servers=here)
    assert (found.server, found.node) == (1, "A") and "it is being started, for 70 s" in found.where
