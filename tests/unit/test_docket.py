"""How long a round had been there when its incident came, and whether all ranks failed alike."""

from elastic_run.master.docket import Docket
from elastic_run.master.incident import ALIKE_SECONDS, QUICK_SECONDS, Evidence, FailedWorker
from elastic_run.rendezvous.member import Exit
from elastic_run.rendezvous.round import Fault, Round


def round_of(number: int, opened_at: float) -> Round:
    return Round(number, ("A",), True, opened_at)


def problem(number: int) -> Evidence:
    return Evidence(number, problems=(("a", "has workers whose ring is broken"),))


def test_a_round_has_been_there_until_the_first_evidence() -> None:
    docket = Docket()
    docket.note(problem(3), round_of(3, 10.0), 25.0)
    docket.note(problem(3), round_of(3, 10.0), 26.0)
    incident = docket.verdict(3)
    assert incident and incident.ran == 15.0


def test_rings_that_break_now_and_then_do_not_end_a_job() -> None:
    docket, now = Docket(), 0.0
    for number in range(1, 20):
        current = round_of(number, now)
        now += QUICK_SECONDS
        docket.note(problem(number), current, now)
        fault = docket.fault(number, 0, 0)
        assert fault and not fault.fatal
        docket.turn(number + 1, docket.settled(), docket.verdict(number))


def test_rings_that_break_at_once_do() -> None:
    docket = Docket()
    ends: list[int] = []
    for number in range(1, 7):
        docket.note(problem(number), round_of(number, 0.0), 1.0)
        fault = docket.fault(number, 0, 0)
        if fault and fault.fatal:
            ends.append(number)
        docket.turn(number + 1, docket.settled(), docket.verdict(number))
    assert ends[0] == 5


MISSING = "ModuleNotFoundError: No module named 'wandb'"


def exit_of(number: int, rank: int, message: str = MISSING) -> Evidence:
    trace = f"Traceback (most recent call last):\n{message}"
    exit_ = Exit(number, rank, 0, 1, code=1, message=message, traceback=trace, seconds=2.0)
    return Evidence(number, (FailedWorker(f"node{rank}", "host", exit_),))


def told(docket: Docket, number: int, *messages: str, workers: int, limit: int = 3) -> Fault:
    """What is known after ranks 0, 1, ... of the round have told of these failures."""
    for rank, message in enumerate(messages):
        docket.note(exit_of(number, rank, message), round_of(number, 0.0), 2.0)
    fault = docket.fault(number, 3, limit, workers)
    assert fault
    return fault


def test_a_failure_that_no_restart_can_change_ends_the_job_once_every_rank_has_it() -> None:
    docket = Docket()
    first = told(docket, 1, MISSING, workers=2)
    assert first.fatal is None and first.alike_by == 2.0 + ALIKE_SECONDS
    both = told(docket, 1, MISSING, MISSING, workers=2)
    assert both.fatal == "failed" and "No module named 'wandb'; every rank failed alike" in both.text


def test_what_one_rank_lacks_may_be_there_at_the_next_start() -> None:
    fault = told(Docket(), 1, MISSING, "ValueError: rank 1 has another trouble", workers=2)
    assert fault.fatal is None and fault.alike_by < 0


def test_nothing_is_waited_for_where_the_user_wants_every_restart() -> None:
    fault = told(Docket(), 1, MISSING, workers=2, limit=0)
    assert fault.fatal is None and fault.alike_by < 0
    assert told(Docket(), 1, MISSING, MISSING, workers=2, limit=0).fatal is None


def test_any_other_exception_is_restarted_at_once_and_ends_the_job_at_its_repetition_by_every_rank() -> None:
    docket, error = Docket(), "TypeError: Net.__init__() missing 1 required positional argument: 'width'"
    first = told(docket, 1, error, error, workers=2)
    assert first.fatal is None and first.alike_by < 0
    docket.turn(2, docket.settled(), docket.verdict(1))
    second = told(docket, 2, error, workers=2)
    assert second.fatal is None and second.alike_by > 0
    assert told(docket, 2, error, error, workers=2).fatal == "repeated"


def test_the_same_report_twice_is_not_two_ranks() -> None:
    docket = Docket()
    told(docket, 1, MISSING, workers=2)
    assert told(docket, 1, MISSING, workers=2).fatal is None
