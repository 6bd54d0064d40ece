"""How the workers of a round have ended, those included that the others have gone on without."""

from elastic_run.elastic_agent.workers.round_exits import RoundExits, failures
from elastic_run.rendezvous.member import Exit

DONE, LOST = Exit(4, 0, 0, 10, code=0), Exit(4, 1, 1, 11, code=1, message="Connection closed by PEER")


def test_each_says_whether_it_lost_a_peer_and_whether_it_had_made_a_step() -> None:
    done, lost = RoundExits(["closed by peer", "timed out"], lambda exit_: exit_.rank == 0).count([DONE, LOST])
    assert (done.lost_peer, done.advanced, lost.lost_peer, lost.advanced) == (False, True, True, False)
    assert failures([done, lost]) == (lost,)


def test_a_framework_without_patterns_loses_no_peer() -> None:
    assert not RoundExits([], lambda _: False).count([LOST])[0].lost_peer


def test_those_that_ended_before_the_others_went_on_come_first() -> None:
    exits = RoundExits([], lambda _: False)
    exits.earlier = (DONE,)
    assert [each.pid for each in exits.count([LOST])] == [10, 11]
