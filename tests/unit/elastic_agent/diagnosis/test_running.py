"""What a node shows of its workers."""

from elastic_run.elastic_agent.diagnosis.running import Running, list_workers
from elastic_run.rendezvous.member import Exit


def test_workers_that_ended_before_the_others_went_on_into_another_round_are_shown_as_ended() -> None:
    """Else the node would show fewer than it was given, and would not count as seen."""
    shown = list_workers((Running(0, 0, 70),), (Exit(2, 1, 1, 71, code=0), Exit(2, 2, 2, 72, signal=9)))
    assert [(each.rank, each.pid, each.ended) for each in shown] == [(0, 70, None), (1, 71, 0), (2, 72, -9)]
