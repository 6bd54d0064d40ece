"""Which events of a trace are one recovery."""

from elastic_run.launcher.telemetry.recovery import MOST_EVENTS, Event, Recoveries


def event(name: str, row: str, begun: float, ended: float | None = None, **args: str | int | float) -> Event:
    return Event(name, row, begun, begun if ended is None else ended, dict(args))


def test_a_recovery_is_what_happens_until_the_workers_of_a_round_have_started() -> None:
    recoveries = Recoveries("job")
    first = [
        recoveries.add(event("detect", "rounds", 10.0, rank=1)),
        recoveries.add(event("round 1", "rank 1", 2.0, 10.0, round=1)),
        recoveries.add(event("decide", "rounds", 10.0, 10.2, round=2)),
        recoveries.add(event("stop", "agent", 10.2, 10.3)),
    ]
    assert first == [None] * 4
    whole = recoveries.add(event("start", "agent", 10.3, 10.5, round=2, run="r"))
    assert whole is not None
    assert (whole.name, whole.begun, whole.ended) == ("round 2", 10.0, 10.5)
    assert [each.name for each in whole.events] == ["detect", "decide", "stop", "start"]
    following = recoveries.add(event("start", "agent", 20.0, 20.1, round=3, run="r"))
    assert following is not None and following.begun == 20.0


def test_all_nodes_give_a_round_one_id_and_another_run_another() -> None:
    ids = set[bytes]()
    for job, run, round in (("job", "r", 2), ("job", "r", 2), ("job", "r", 3), ("job", "s", 2), ("other", "r", 2)):
        whole = Recoveries(job).add(event("start", "agent", 0.0, 1.0, round=round, run=run))
        assert whole is not None and len(whole.id) == 16
        ids.add(whole.id)
    assert len(ids) == 4


def test_what_is_waiting_for_its_end_is_bounded() -> None:
    recoveries = Recoveries("job")
    for number in range(5 * MOST_EVENTS):
        assert recoveries.add(event("evidence", "master", float(number))) is None
    whole = recoveries.add(event("leave", "agent", 9e9, code=0))
    assert whole is not None and whole.name == "end" and len(whole.events) == MOST_EVENTS
