"""What ends a round, as one part of the controller knows it; its verdicts are in `test_incident_log.py`."""

from elastic_run.master import effects
from elastic_run.master.faults import Faults
from elastic_run.master.incident import Evidence
from elastic_run.rendezvous.member import Exit, Fingerprint, Member, Report, State
from elastic_run.rendezvous.node_reasons import LeaseExpired, PreemptionNotice
from elastic_run.rendezvous.ranks import Assignment
from elastic_run.rendezvous.round import Round

FINGERPRINT = Fingerprint("train.py", (), "2", "1", "1.0")
CURRENT = Round(1, ("A", "B"), True, 0.0)


def member(name: str, state: State = "failed", *exits: Exit) -> Member:
    report = Report(state, 1, exits, run="R")
    return Member(name, name.upper(), "host", "host:1", 1, (5001,), FINGERPRINT, report=report)


def faults(optional: str = "") -> Faults:
    made = Faults(0, 3, 0, {optional} if optional else ())
    made.take_part(
        (Assignment(1, "a", "A", 0, 2, 0, 1, 2, 0, 2), Assignment(1, "b", "B", 1, 2, 1, 1, 2, 0, 1, role="eval"))
    )
    return made


FAILED = member("b", "failed", Exit(1, 1, 0, 7, code=1))


def test_the_first_evidence_of_a_round_is_told_once_with_its_time() -> None:
    part = faults()
    assert part.began_at(1, 9.0) == 9.0
    assert effects.FirstEvidence(1) in part.hear_report(FAILED, CURRENT, 5.0, inside=True, run="R")
    assert effects.FirstEvidence(1) not in part.note(Evidence(1, lost=(("a", LeaseExpired()),)), CURRENT, 6.0)
    assert part.began_at(1, 9.0) == 5.0 and not part.only_left


def test_a_departure_alone_is_no_fault() -> None:
    part = faults()
    part.note(Evidence(1, left=(("a", PreemptionNotice(15)),)), CURRENT, 5.0)
    assert part.only_left and part.judge_round(1) is not None
    assert part.charge_end(1, failed=False)[0] == part.log.settled()


def test_a_report_of_another_run_is_no_evidence() -> None:
    part = faults()
    assert part.hear_report(FAILED, CURRENT, 5.0, inside=False, run="another") == []
    assert part.judge_round(1) is None


def test_a_job_goes_on_without_an_optional_role_whose_restarts_are_used_up() -> None:
    part = faults("eval")
    (said,) = part.hear_report(FAILED, CURRENT, 5.0, inside=True, run="R")
    assert isinstance(said, effects.Say) and said.line.startswith("continues without the eval of b: ")
    assert part.hear_report(FAILED, CURRENT, 6.0, inside=True, run="R") == [] and part.judge_round(1) is None
