"""What ends a round, as one part of the controller knows it; its verdicts are in `test_incident_log.py`."""

from dataclasses import replace

from elastic_run.master.machine import effects
from elastic_run.master.machine.faults import Faults
from elastic_run.master.machine.incident import Evidence, joins
from elastic_run.master.machine.round_state import RoundState
from elastic_run.rendezvous.header import Header, Tally
from elastic_run.rendezvous.member import Exit, Fingerprint, Member, Report, State
from elastic_run.rendezvous.node_reasons import LeaseExpired, PreemptionNotice
from elastic_run.rendezvous.ranks import Assignment
from elastic_run.rendezvous.reasons import NoChange
from elastic_run.rendezvous.roles import Role
from elastic_run.rendezvous.round import Finish, Policy, Suspend

FINGERPRINT = Fingerprint("train.py", (), "2", "1", "1.0")


def current(least_evaluators: int = 1) -> RoundState:
    return RoundState.of(
        Header(1, "R", "open", "start", NoChange(), FINGERPRINT),
        (Assignment(1, "a", "A", 0, 2, 0, 1, 2, 0, 2), Assignment(1, "b", "B", 1, 2, 1, 1, 2, 0, 1, role="eval")),
        0.0,
        Policy(1, 2, roles=(Role("eval", least_evaluators, 1, on_loss="one", counts=False),)),
    )


CURRENT = current()


def member(name: str, state: State = "failed", *exits: Exit) -> Member:
    report = Report(state, 1, exits, run="R")
    return Member(name, name.upper(), "host", "host:1", 1, (5001,), FINGERPRINT, report=report)


def faults() -> Faults:
    return Faults(0, 3, 0)


FAILED = member("b", "failed", Exit(1, 1, 0, 7, code=1))


def test_the_first_evidence_of_a_round_is_told_once_with_its_time() -> None:
    part = faults()
    assert part.charge(Suspend("failure"), CURRENT, 9.0).begun == 9.0
    assert effects.FirstEvidence(1) in part.hear_report(FAILED, CURRENT, 5.0, "R")
    assert effects.FirstEvidence(1) not in part.note(Evidence(1, lost=(("a", LeaseExpired()),)), CURRENT, 6.0)
    assert part.charge(Suspend("failure"), CURRENT, 9.0).begun == 5.0 and not part.only_left


def test_a_failure_of_a_worker_that_continues_counts_in_the_round_in_which_it_continues() -> None:
    """A node joined at that very moment: the failure opens the next round, and that one alone."""
    for on in (False, True):
        part = faults()
        later = replace(CURRENT, current=replace(CURRENT.current, number=2), continuing=frozenset("B" if on else ""))
        part.hear_report(FAILED, CURRENT, 5.0, "R")
        part.log.turn(2, Tally(), joins(1, ["c"]))
        part.hear_report(FAILED, later, 5.1, "R")
        assert part.log.pending and part.log.pending.cause == ("joined" if on else "failure")


def test_a_departure_alone_is_no_fault() -> None:
    part = faults()
    part.note(Evidence(1, left=(("a", PreemptionNotice(15)),)), CURRENT, 5.0)
    assert part.only_left and part.judge_round(CURRENT) is not None
    assert part.charge(Finish("preempted"), CURRENT, 6.0).tally == part.log.settled()


def test_a_report_of_another_run_is_no_evidence() -> None:
    part = faults()
    assert part.hear_report(FAILED, CURRENT, 5.0, "another") == []
    assert part.judge_round(CURRENT) is None


def test_a_job_goes_on_without_an_optional_role_whose_restarts_are_used_up() -> None:
    part, optional = faults(), current(least_evaluators=0)
    (said,) = part.hear_report(FAILED, optional, 5.0, "R")
    assert isinstance(said, effects.Say) and said.line.startswith("continues without the eval of b: ")
    assert part.hear_report(FAILED, optional, 6.0, "R") == [] and part.judge_round(optional) is None
