"""How long a round had been there when its incident came, whether all ranks failed alike, and what evidence costs."""

import sys
from collections.abc import Callable
from signal import SIGSEGV, SIGTERM
from types import FrameType

import pytest

from elastic_run.master.machine.incident import ALIKE_SECONDS, QUICK_SECONDS, Evidence, FailedWorker
from elastic_run.master.machine.incident_log import IncidentLog
from elastic_run.rendezvous.member import Exit
from elastic_run.rendezvous.node_reasons import LeaseExpired, PreemptionNotice, ProcessGroupBroke
from elastic_run.rendezvous.round import Fault, Round


def round_of(number: int, opened_at: float) -> Round:
    return Round(number, ("A",), True, opened_at)


def problem(number: int) -> Evidence:
    return Evidence(number, problems=(("a", ProcessGroupBroke("reset")),))


def test_a_round_has_been_there_until_the_first_evidence() -> None:
    log = IncidentLog()
    log.note(problem(3), round_of(3, 10.0), 25.0)
    log.note(problem(3), round_of(3, 10.0), 26.0)
    incident = log.verdict(3)
    assert incident and incident.ran == 15.0


def test_process_groups_that_break_now_and_then_do_not_end_a_job() -> None:
    log, now = IncidentLog(), 0.0
    for number in range(1, 20):
        current = round_of(number, now)
        now += QUICK_SECONDS
        log.note(problem(number), current, now)
        fault = log.fault(number, 0, 0)
        assert fault and not fault.fatal
        log.turn(number + 1, log.settled(), log.verdict(number))


def test_process_groups_that_break_at_once_do() -> None:
    log = IncidentLog()
    ends: list[int] = []
    for number in range(1, 7):
        log.note(problem(number), round_of(number, 0.0), 1.0)
        fault = log.fault(number, 0, 0)
        if fault and fault.fatal:
            ends.append(number)
        log.turn(number + 1, log.settled(), log.verdict(number))
    assert ends[0] == 5


MISSING = "ModuleNotFoundError: No module named 'wandb'"


def exit_of(number: int, rank: int, message: str = MISSING) -> Evidence:
    trace = f"Traceback (most recent call last):\n{message}"
    exit_ = Exit(number, rank, 0, 1, code=1, message=message, traceback=trace, seconds=2.0)
    return Evidence(number, (FailedWorker(f"node{rank}", "host", exit_),))


def told(log: IncidentLog, number: int, *messages: str, workers: int, limit: int = 3) -> Fault:
    """What is known after ranks 0, 1, ... of the round have told of these failures."""
    for rank, message in enumerate(messages):
        log.note(exit_of(number, rank, message), round_of(number, 0.0), 2.0)
    fault = log.fault(number, 3, limit, workers)
    assert fault
    return fault


def test_a_failure_that_no_restart_can_change_ends_the_job_once_every_rank_has_it() -> None:
    log = IncidentLog()
    first = told(log, 1, MISSING, workers=2)
    assert first.fatal is None and first.alike_by == 2.0 + ALIKE_SECONDS
    both = told(log, 1, MISSING, MISSING, workers=2)
    assert both.fatal == "failed" and "No module named 'wandb'; every rank failed in the same way" in str(both.reason)


def test_what_one_rank_lacks_may_be_there_at_the_next_start() -> None:
    fault = told(IncidentLog(), 1, MISSING, "ValueError: rank 1 has another trouble", workers=2)
    assert fault.fatal is None and fault.alike_by < 0


def test_nothing_is_waited_for_where_the_user_wants_every_restart() -> None:
    fault = told(IncidentLog(), 1, MISSING, workers=2, limit=0)
    assert fault.fatal is None and fault.alike_by < 0
    assert told(IncidentLog(), 1, MISSING, MISSING, workers=2, limit=0).fatal is None


def test_any_other_exception_is_restarted_at_once_and_ends_the_job_at_its_repetition_by_every_rank() -> None:
    log, error = IncidentLog(), "TypeError: Net.__init__() missing 1 required positional argument: 'width'"
    first = told(log, 1, error, error, workers=2)
    assert first.fatal is None and first.alike_by < 0
    log.turn(2, log.settled(), log.verdict(1))
    second = told(log, 2, error, workers=2)
    assert second.fatal is None and second.alike_by > 0
    assert told(log, 2, error, error, workers=2).fatal == "repeated"


OWN, ELSEWHERE = ('  File "/work/train.py", line 7, in step', '  File "/work/train.py", line 9, in step')


@pytest.mark.parametrize(
    ("first", "second", "message", "advanced", "limit", "ends"),
    [
        (OWN, OWN, "ValueError: 3 columns, not 4", False, 2, True),
        (OWN, OWN.replace("/work", "/scratch"), "ValueError: 3 columns, not 4", False, 2, True),
        (OWN, OWN, "ValueError: 3 columns, not 4", False, 0, False),  # the user has given a number
        (OWN, OWN, "ValueError: 3 columns, not 4", True, 2, False),
        (OWN, ELSEWHERE, "ValueError: 3 columns, not 4", False, 2, False),
        ("", "", "ValueError: 3 columns, not 4", False, 2, False),
        (OWN, OWN, "FileNotFoundError: [Errno 2] No such file or directory: 'x'", False, 2, False),
        (OWN, OWN, "PermissionError: not yet", False, 2, False),
        (OWN, OWN, "MemoryError", False, 2, False),
        (OWN, OWN, "TimeoutError", False, 2, False),
        (OWN, OWN, "sqlalchemy.exc.OperationalError: connection lost", False, 2, False),
        (OWN, OWN, "RuntimeError: DataLoader worker (pid 7) exited unexpectedly", False, 2, False),
        (OWN, OWN, "subprocess.CalledProcessError: died with SIGKILL", False, 2, False),
    ],
)
def test_an_exception_of_the_scripts_own_ends_the_job_at_its_repetition_by_any_rank(
    first: str, second: str, message: str, advanced: bool, limit: int, ends: bool
) -> None:
    log = IncidentLog()
    for number, place in ((1, first), (2, second)):
        trace = f"Traceback (most recent call last):\n{place}\n{message}"
        exit_ = Exit(number, 1, 1, 7, code=1, message=message, traceback=trace, seconds=2.0, advanced=advanced)
        log.note(Evidence(number, (FailedWorker("a", "host", exit_),)), round_of(number, 0.0), 2.0)
        fault = log.fault(number, 3, 3, 8, limit)
        assert fault and (fault.fatal == "repeated") == (ends and number == 2)
        log.turn(number + 1, log.settled(), log.verdict(number))


@pytest.mark.parametrize(
    ("workers", "signal", "settled"),
    [(1, None, 2.0), (1, SIGSEGV, 2.0), (2, None, 3.0), (0, None, 3.0), (1, SIGTERM, 3.0)],
)
def test_a_verdict_that_ends_the_job_waits_for_reports_only_while_somebody_may_send_one(
    workers: int, signal: int | None, settled: float
) -> None:
    log, code = IncidentLog(), None if signal else 1
    exit_ = Exit(1, 0, 0, 1, code=code, signal=signal, message="ValueError: no", seconds=2.0)
    log.note(Evidence(1, (FailedWorker("a", "host", exit_),)), round_of(1, 0.0), 2.0)
    fault = log.fault(1, 0, 0, workers)
    assert fault and fault.fatal == "failed" and fault.settled_at == settled


def test_the_same_report_twice_is_not_two_ranks() -> None:
    log = IncidentLog()
    told(log, 1, MISSING, workers=2)
    assert told(log, 1, MISSING, workers=2).fatal is None


@pytest.mark.parametrize("when", ["before the next round", "in the next round", "while the job is suspended"])
@pytest.mark.parametrize(
    ("message", "failures"), [("ValueError: no", 1), ("RuntimeError: Connection reset by peer", 0)], ids=["own", "lost"]
)
def test_a_failure_is_charged_once_whoever_leaves_after_it_but_for_a_consequence(
    when: str, message: str, failures: int
) -> None:
    log, departure = IncidentLog(), (("b", PreemptionNotice(15)),)
    log.note(exit_of(1, 0, message), round_of(1, 0.0), 5.0)
    if when == "before the next round":
        log.note(Evidence(1, left=departure), round_of(1, 0.0), 5.3)
        log.turn(2, log.settled(), log.verdict(1))
    else:
        log.turn(2, log.settled(), log.verdict(1))
        assert log.settled().failures == 1, "provisional"
        log.note(Evidence(2, left=departure), Round(2, ("A",), when == "in the next round", 5.1), 5.3)
        if when == "in the next round":
            log.turn(3, log.settled(), log.verdict(2))
    tally = log.settled()
    assert tally.failures == failures
    assert tally.left == (when == "in the next round" or not failures)


def calls(work: Callable[[], object]) -> int:
    """Python functions that `work` calls: what is done for each exit calls some."""
    count = 0

    def see(frame: FrameType, event: str, argument: object) -> None:
        nonlocal count
        count += event == "call"

    before = sys.getprofile()
    sys.setprofile(see)
    try:
        work()
    finally:
        sys.setprofile(before)
    return count


def told_of(exits: int, *, rounds: int) -> Callable[[], object]:
    """All workers of a large job fail at once: each exit is told twice, and the master judges after each."""
    log, current = IncidentLog(), round_of(1, 0.0)
    workers = [
        FailedWorker(f"n{rank // 8}", "host", Exit(1, rank, rank % 8, rank, code=1, message="ValueError: no"))
        for rank in range(exits)
    ]

    def work() -> None:
        for _ in range(2):
            for worker in workers:
                log.note(Evidence(1, exits=(worker,)), current, 1.0)
                log.fault(1, 3, 5)

    def late() -> None:
        log.note(Evidence(1, exits=(workers[0],)), current, 1.0)
        log.turn(2, log.settled(), log.verdict(1))
        for worker in workers:
            log.note(Evidence(1, exits=(worker,)), round_of(2, 1.1), 1.2)

    return work if rounds == 1 else late


def test_evidence_costs_the_same_for_each_exit_however_many_there_are() -> None:
    assert calls(told_of(600, rounds=1)) < 8 * calls(told_of(100, rounds=1))


def test_evidence_that_comes_after_the_next_round_was_opened_costs_the_same_for_each_exit() -> None:
    assert calls(told_of(600, rounds=2)) < 8 * calls(told_of(100, rounds=2))


def test_a_loss_costs_the_same_however_many_nodes_are_lost() -> None:
    class Name(str):
        def __hash__(self) -> int:
            return super().__hash__()

    def lost(nodes: int) -> Callable[[], object]:
        log = IncidentLog()

        def work() -> None:
            for node in range(nodes):
                log.note(Evidence(1, lost=((Name(f"n{node}"), LeaseExpired()),)), round_of(1, 0.0), 1.0)
                log.fault(1, 3, 5)

        return work

    assert calls(lost(600)) < 8 * calls(lost(100))
