"""What a node shows of its workers."""

from types import SimpleNamespace

from elastic_run.elastic_agent.diagnosis.running import Running
from elastic_run.elastic_agent.workers.worker_group import WorkerGroup
from elastic_run.rendezvous.member import Exit


def test_workers_that_ended_before_the_others_went_on_into_another_round_are_shown_as_ended() -> None:
    """Else the node would show fewer than it was given, and would not count as seen."""
    group = object.__new__(WorkerGroup)
    setattr(group, "_workers", SimpleNamespace(running=(Running(0, 0, 70),)))  # noqa: B010  they are private
    setattr(group, "_ended", (Exit(2, 1, 1, 71, code=0), Exit(2, 2, 2, 72, signal=9)))  # noqa: B010
    assert [(each.rank, each.pid, each.ended) for each in group.running] == [(0, 70, None), (1, 71, 0), (2, 72, -9)]
