"""What nodes tell of their parameter servers, and what a job's status makes of it."""

import pytest

from elastic_run.master.machine.parameter_servers import (
    GONE,
    WINDOW,
    NodeServers,
    RankWait,
    ServerMeasure,
    ServerReport,
    ServersSeen,
    TableMeasure,
)


def told(pulls: int, seconds: float = 0.0, *, node: str = "a", incarnation: str = "x", number: int = 0) -> NodeServers:
    measure = ServerMeasure(pulls=pulls, pull_seconds=seconds)
    return NodeServers(node, (ServerReport(number, incarnation, "answers", measure=measure),))


def test_rates_are_taken_over_a_window_and_another_process_begins_anew() -> None:
    seen = ServersSeen()
    seen.take_word(told(1000), 0.0)
    assert seen.list_servers(0.0).servers[0].pulls is None
    for second in range(2, 62, 2):
        seen.take_word(told(1000 + 10 * second, 0.02 * second), float(second))
    (server,) = seen.list_servers(60.0).servers
    assert server.pulls == pytest.approx(10.0) and server.pull_seconds == pytest.approx(0.002)
    for second in range(62, 62 + int(WINDOW) + 2, 2):
        seen.take_word(told(1600, 1.2), float(second))
    (server,) = seen.list_servers(92.0).servers
    assert server.pulls == 0.0 and server.pull_seconds is None
    seen.take_word(told(3, incarnation="y"), 94.0)
    assert seen.list_servers(94.0).servers[0].pulls is None


def test_a_server_that_has_ended_takes_no_rate_below_zero() -> None:
    seen = ServersSeen()
    for second, pulls in ((0.0, 1000), (2.0, 1020), (4.0, 0)):
        seen.take_word(told(pulls), second)
    assert seen.list_servers(4.0).servers[0].pulls is None


def test_a_server_that_moves_stands_once_where_it_was_told_of_last() -> None:
    seen = ServersSeen()
    for second in (0.0, 2.0):
        seen.take_word(told(9, node="a"), second)
    seen.take_word(told(0, node="b", incarnation="y"), 2.5)
    seen.take_word(told(9, node="a"), 4.0)
    assert [each.node for each in seen.list_servers(4.0).servers] == ["b"]
    seen.take_word(told(9, node="a", number=1), 5.0)
    assert [(each.node, each.report.number) for each in seen.list_servers(5.0).servers] == [("b", 0), ("a", 1)]


def test_a_node_that_tells_nothing_any_more_is_forgotten() -> None:
    seen = ServersSeen()
    seen.take_word(told(1, node="b", number=1), 0.0)
    seen.take_word(told(1), GONE)
    assert [each.node for each in seen.list_servers(GONE).servers] == ["a", "b"]
    assert [each.node for each in seen.list_servers(GONE + 1.0).servers] == ["a"]


def test_short_waits_are_not_told_and_all_others_are_in_the_order_of_ranks() -> None:
    seen = ServersSeen()
    seen.take_word(NodeServers("b", waits=(RankWait(3, (1,), 4.0), RankWait(2, (0,), 0.4))), 0.0)
    seen.take_word(NodeServers("a", waits=(RankWait(0, (0, 1), 3.0),)), 0.0)
    assert seen.list_servers(0.0).waits == (RankWait(0, (0, 1), 3.0), RankWait(3, (1,), 4.0))


def test_tables_are_summed_over_servers() -> None:
    seen = ServersSeen()
    tables = TableMeasure("t", 2, 80, 30, 10, 1, 0.5, 7, 1, 3), TableMeasure("t", 3, 120, 0, 5)
    for number, table in enumerate(tables):
        measure = ServerMeasure((table,))
        seen.take_word(NodeServers(f"n{number}", (ServerReport(number, f"{number}", "answers", measure=measure),)), 0.0)
    assert seen.list_servers(0.0).sum_tables() == (TableMeasure("t", 5, 200, 30, 15, 1, 0.5, 7, 1, 3),)
