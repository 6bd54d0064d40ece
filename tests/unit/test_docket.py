"""How long a round had been there when its incident came."""

from elastic_run.master.docket import Docket
from elastic_run.master.incident import QUICK_SECONDS, Evidence
from elastic_run.rendezvous.round import Round


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
