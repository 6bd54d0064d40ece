"""What a job's parameter servers do, in words."""

import pytest

from elastic_run.launcher.server_words import in_megabytes, in_rate, server_copies, table_lines, wait_lines
from elastic_run.master.machine.parameter_servers import (
    RankWait,
    ServerMeasure,
    ServerReport,
    ServersStatus,
    ServerStatus,
    TableMeasure,
)
from elastic_run.master.servers.slot_table import SLOTS


def server(
    number: int, *, slots: int = SLOTS, bare: int = 0, copying: int = 0, tables: tuple[TableMeasure, ...] = ()
) -> ServerStatus:
    measure = ServerMeasure(tables, copying=copying)
    report = ServerReport(number, f"{number}", "answers", slots=slots, bare=bare, measure=measure)
    return ServerStatus(f"n{number}", report)


@pytest.mark.parametrize(
    ("found", "words"),
    [
        ((server(0), server(1)), "every slot has a second copy"),
        ((server(0, bare=3), server(1, bare=4)), "7 slots have no second copy"),
        ((server(0, bare=1, copying=2),), "1 slot has no second copy, 2 are on their way"),
        ((server(0, slots=512), server(1, slots=511)), "1 slot is not served yet"),
        ((server(0, slots=0),), "1024 slots are not served yet"),
    ],
)
def test_whether_every_slot_has_a_second_copy_is_said(found: tuple[ServerStatus, ...], words: str) -> None:
    assert server_copies(ServersStatus(found)) == words


def test_who_waits_for_whom_is_one_line_for_each_group() -> None:
    waits = (RankWait(0, (1,), 2.0), RankWait(1, (1,), 7.2), RankWait(2, (0, 2), 3.0), RankWait(3, (), 90.0))
    assert list(wait_lines(ServersStatus((server(0), server(1)), waits))) == [
        "rank 3 waits for parameter servers, which have not all started, for 90 s",
        "rank 2 waits for parameter servers 0 on node n0, 2 on node ?, for 3 s",
        "ranks 0-1 wait for parameter server 1 on node n1, for 7 s",
    ]


def test_ranks_that_wait_for_many_servers_are_told_in_a_few_short_lines() -> None:
    waits = tuple(RankWait(rank, tuple(range(rank % 40 + 1)), 2.0) for rank in range(1000))
    lines = list(wait_lines(ServersStatus(tuple(map(server, range(40))), waits)))
    assert len(lines) == 9 and all(len(line) < 300 for line in lines) and "800 more ranks wait for others" in lines
    (line,) = wait_lines(ServersStatus((server(0),), (RankWait(0, tuple(range(10)), 2.0),)))
    assert ", 7 on node ? and 2 more, for 2 s" in line


def test_a_table_is_told_with_what_its_merging_saves() -> None:
    tables = (TableMeasure("u\x1b", 1, 40, 30, 10), TableMeasure("v", 2, 80, on_disk=1))
    first, second = table_lines(ServersStatus((server(0, tables=tables),)))
    assert first.endswith(": 1 row (second copies included), 0.0 MB, 3.0 ids given for each that was pulled")
    assert "\x1b" not in first and second == "table v: 2 rows (second copies included), 1 of them on disk, 0.0 MB"


def test_numbers_are_short() -> None:
    assert (in_megabytes(1_234_567), in_megabytes(98_765_432)) == ("1.2", "99")
    assert (in_rate(None, None), in_rate(0.0, None), in_rate(12.345, 0.00312)) == ("-", "0", "12.3 (3.1 ms)")
