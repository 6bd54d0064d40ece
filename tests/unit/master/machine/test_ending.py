"""How a job that is over ends: the part by itself."""

import dataclasses

from elastic_run.master.machine.effects import CleanUp, Wait
from elastic_run.master.machine.ending import Ending
from elastic_run.rendezvous.header import Header
from elastic_run.rendezvous.member import Fingerprint, Member, Report, State
from elastic_run.rendezvous.reasons import NoChange
from elastic_run.rendezvous.round import Seen

FINGERPRINT = Fingerprint("train.py", (), "2", "1", "1.0")
ENDING = Ending(Header(4, "run", "succeeded", "start", NoChange(), FINGERPRINT), 9, 30.0)


def seen(order: int, state: State = "succeeded", *, gone: bool = False) -> Seen:
    return Seen(Member("a", "a#1", "host", "", 1, (), FINGERPRINT, report=Report(state, 3)), order, 0.0, gone=gone)


def test_the_keys_are_removed_when_every_node_of_the_run_has_left() -> None:
    assert ENDING.see_off([seen(1)], None, 5.0) == Wait(30.0)
    assert ENDING.see_off([seen(1, gone=True), seen(10)], None, 5.0) == CleanUp(succeeded=True)


def test_nodes_that_may_return_are_awaited_and_nobody_longer_than_the_deadline() -> None:
    assert ENDING.see_off([], 12.0, 5.0) == Wait(12.0)
    assert ENDING.see_off([seen(1)], 40.0, 5.0) == Wait(30.0)
    assert ENDING.see_off([seen(1)], None, 30.0) == CleanUp(succeeded=True)


def test_of_a_preempted_job_only_those_that_were_told_to_leave_are_awaited() -> None:
    ending = dataclasses.replace(ENDING, header=dataclasses.replace(ENDING.header, state="preempted"))
    assert ending.see_off([seen(1, "leaving")], None, 5.0) == Wait(30.0)
    assert ending.see_off([seen(1, "waiting")], None, 5.0) == CleanUp(succeeded=False)
