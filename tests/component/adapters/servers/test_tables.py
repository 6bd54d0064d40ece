"""The tables of a server: each record's gradient counts once, and what is wrong changes nothing."""

from collections import Counter
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from elastic_run.adapters.servers import rows
from elastic_run.adapters.servers.errors import TableMisused
from elastic_run.adapters.servers.requests import (
    OpenTable,
    PullRows,
    PushGradients,
    PushSource,
    ReadMarks,
    ReadPiece,
    Reply,
    WorkerRequest,
)
from elastic_run.adapters.servers.specs import SGD, Adagrad, Adam, TableSpec, Uniform, Zeros
from elastic_run.adapters.servers.tables import Tables as ServerTables
from elastic_run.adapters.servers.tables import apply_parts, find_parts
from elastic_run.master.servers.slot_table import SLOTS

from .machine_tables import COUNTS, Tables, opened


def push(tables: Tables, ids: list[int], begin: int, end: int, *, lease: int = 1, shard: int = 0) -> Reply:
    """As the gradient of a loss that counts the ids."""
    distinct, times = np.unique(np.array(ids, np.int64), return_counts=True)
    claim = PushSource("d", shard, lease, begin, end)
    return tables.answer(PushGradients(("counts",), claim, 1), (distinct, -times.astype(np.float32)[:, None]))[0]


def counted(*servers: Tables) -> dict[int, float]:
    found: dict[int, float] = {}
    for tables in servers:
        _, (ids, values) = tables.answer(ReadPiece("counts", 0, 1), ())
        for id_, value in zip(ids.tolist(), values[:, 0].tolist(), strict=True):
            if value:
                found[id_] = found.get(id_, 0.0) + value
    return found


SHARD = 24
RECORDS = st.lists(st.integers(-50, 50), min_size=SHARD, max_size=SHARD)


@settings(max_examples=200)
@given(
    records=RECORDS,
    batch=st.integers(1, 9),
    lives=st.lists(
        st.tuples(st.integers(0, 5), st.sampled_from(["none", "first", "second", "both", "unsaid"])), max_size=6
    ),
)
def test_each_record_counts_once_whatever_dies_between_servers_and_ledger(
    records: list[int], batch: int, lives: list[tuple[int, str]]
) -> None:
    """One shard, two servers with half of the ids each, workers that die at any point of a push.

    Each life does some batches; in its last one the push reaches neither server, one, or both, or the ledger hears
    nothing of it. The next begins where the ledger stands, cuts its batches at the marks, and pushes again.
    """
    servers = [opened(), opened()]

    def push_to(server: Tables, begin: int, end: int, lease: int) -> None:
        ids = [each for each in records[begin:end] if servers[each % 2] is server]
        assert push(server, ids, begin, end, lease=lease).refused == ""

    said = 0  # to the ledger
    for lease, (batches, death) in enumerate([*lives, (SHARD, "none")], 1):
        cuts = sorted({server.answer(ReadMarks("d", 0, 0, 1), ())[0].marks[0] for server in servers})
        begin = said
        for number in range(batches + 1):
            if begin == SHARD:
                break
            end = min([begin + batch, SHARD, *(cut for cut in cuts if cut > begin)])
            last = number == batches and death != "none"
            for server, name in zip(servers, ("first", "second"), strict=True):
                if not last or death in (name, "both", "unsaid"):
                    push_to(server, begin, end, lease)
            if last:
                break
            begin = said = end
    assert said == SHARD
    assert counted(*servers) == {id_: float(times) for id_, times in Counter(records).items()}


def test_what_was_applied_is_not_applied_again_and_nothing_is_left_out() -> None:
    tables = opened()
    assert push(tables, [1, 2, 2], 0, 3).count == 2
    assert push(tables, [1, 2, 2], 0, 3).count == 0  # its answer was lost
    assert push(tables, [7], 3, 4).count == 1
    part, gap, none = push(tables, [2, 7], 2, 5), push(tables, [9], 6, 7), push(tables, [9], 4, 4)
    assert (part.refused, gap.refused, none.refused) == ("records",) * 3
    assert "records 2 to 5 of shard 0 of 'd' are applied in part: cut the batch at record 4" in part.text
    assert "do not follow those before them: 4 records are applied" in gap.text
    assert counted(tables) == {1: 1.0, 2: 2.0, 7: 1.0}


def test_a_push_of_an_earlier_lease_is_refused() -> None:
    tables = opened()
    push(tables, [1], 0, 1, lease=2)
    assert "under lease 1, which lease 2 follows" in push(tables, [1], 1, 2, lease=1).text
    assert push(tables, [1], 1, 2, lease=1, shard=1).refused == ""
    assert counted(tables) == {1: 2.0}


@pytest.mark.parametrize(
    ("request_", "arrays", "words"),
    [
        (PullRows(("other",), 1), [np.arange(2)], "there is no table 'other' here: declare it first"),
        (PullRows(("counts",), 1), [], "a pull of 1 tables came with 0 arrays"),
        (PullRows(("counts",), 1), [np.zeros((2, 1), np.float32)], "ids are float32 of 2 dimensions"),
        (
            PushGradients(("counts",), PushSource("d", 0, 1, 0, 1), 1),
            [np.arange(2)],
            "a push of 1 tables came with 1 arrays",
        ),
        (
            PushGradients(("counts",), PushSource("d", 0, 1, 0, 1), 1),
            [np.arange(2), np.zeros((2, 3), np.float32)],
            "table 'counts': 2 ids have gradients of float32 (2, 3), and not of float32 (2, 1)",
        ),
        (
            PushGradients(("counts", "counts"), PushSource("d", 0, 1, 0, 1), 1),
            [np.arange(1), np.ones((1, 1), np.float32), np.arange(1), np.full((1, 1), np.inf, np.float32)],
            "a gradient is not a finite number; nothing of this push was applied",
        ),
        (ReadPiece("other", 0, 1), [], "there is no table 'other' here"),
        (OpenTable(TableSpec("counts", 2, SGD(1.0), Zeros()), 1), [], "with columns 1 in place of 2"),
        (
            OpenTable(TableSpec("counts", 1, SGD(1.0), Zeros(), dtype="float16"), 1),
            [],
            "with dtype 'float32' in place of",
        ),
        (OpenTable(TableSpec("", 2, SGD(1.0), Zeros()), 1), [], "1 to 200 printable characters"),
        (OpenTable(TableSpec("t", 0, SGD(1.0), Zeros()), 1), [], "dim=0 must be from 1 to 4096"),
        (OpenTable(TableSpec("t", 2, SGD(0.0), Zeros()), 1), [], "SGD(lr=0.0)"),
        (
            OpenTable(TableSpec("t", 2, Adam(beta2=1.0), Zeros()), 1),
            [],
            "Adam(beta2=1.0) must be at least 0 and below 1",
        ),
        (OpenTable(TableSpec("t", 2, SGD(1.0), Uniform(float("nan"))), 1), [], "Uniform(low=nan)"),
    ],
)
def test_what_is_wrong_is_said_and_changes_nothing(request_: WorkerRequest, arrays: list[Any], words: str) -> None:
    tables = opened()
    push(tables, [1], 0, 1, shard=1)
    reply, _ = tables.answer(request_, arrays)
    assert reply.refused == "misused"
    assert words in reply.text
    assert counted(tables) == {1: 1.0}
    assert tables.answer(ReadMarks("d", 0, 0, 1), ())[0].marks[0] == 0


def test_a_bound_may_differ_from_that_of_an_earlier_run_and_not_between_workers() -> None:
    tables = ServerTables(100_000)
    tables.take_table(COUNTS)  # of a checkpoint
    bounded, other = replace(COUNTS, max_staleness=2), replace(COUNTS, max_staleness=None)
    tables.open_table(bounded)
    tables.take_table(COUNTS)  # of a server that has not heard yet
    tables.open_table(bounded)
    with pytest.raises(TableMisused, match="max_staleness 2 in place of None"):
        tables.open_table(other)
    joined = ServerTables(100_000)
    joined.take_table(bounded)  # of a server that has heard
    with pytest.raises(TableMisused, match="max_staleness 2 in place of None"):
        joined.open_table(other)
    for wrong in (-1, 1.5, True):
        with pytest.raises(TableMisused, match=r"max_staleness=.* must be a number of pushes from 0, or None"):
            ServerTables(100_000).open_table(replace(COUNTS, max_staleness=wrong))


def test_a_push_that_does_not_fit_is_refused_whole() -> None:
    tables = opened(COUNTS, TableSpec("wide", 1000, Adagrad(), Zeros()), memory=100_000)
    claim = PushSource("d", 0, 1, 0, 1)
    ids, gradients = np.arange(20), np.ones((20, 1000), np.float32)
    arrays = (np.arange(5), np.ones((5, 1), np.float32), ids, gradients)
    reply, _ = tables.answer(PushGradients(("counts", "wide"), claim, 1), arrays)
    assert reply.refused == "full"
    assert "KiB more are wanted" in reply.text
    assert counted(tables) == {}
    assert (
        tables.answer(PushGradients(("counts", "wide"), claim, 1), (*arrays[:2], ids[:9], gradients[:9]))[0].count == 14
    )


def test_a_pull_of_more_than_an_answer_may_have_is_refused_before_its_rows_are_gathered(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    tables = opened(TableSpec("wide", 4096, SGD(1.0), Zeros()))
    monkeypatch.setattr(rows.Rows, "read", None)
    reply, _ = tables.answer(PullRows(("wide",), 1), (np.arange(20_000),))
    assert (reply.refused, reply.text) == (
        "misused",
        "312 MiB at a time, and 256 is the most: use smaller batches, or more servers",
    )


def test_a_pull_makes_no_row() -> None:
    tables = opened()
    _, (rows,) = tables.answer(PullRows(("counts",), 1), (np.arange(5),))
    assert rows.shape == (5, 1)
    assert tables.answer(OpenTable(COUNTS, 1), ())[0].count == 0


@pytest.mark.parametrize("admit_after", [1, 2], ids=["plain", "managed"])
def test_a_push_that_does_not_fit_makes_no_row_in_any_table(admit_after: int) -> None:
    tables = ServerTables(4096)
    ids, slots = np.arange(20), np.ones(SLOTS, np.bool_)
    for name, columns in (("narrow", 1), ("wide", 200)):
        tables.open_table(TableSpec(name, columns, SGD(1.0), Zeros(), admit_after=admit_after))
    arrays = [ids, np.ones((20, 1), np.float32), ids, np.ones((20, 200), np.float32)]
    with pytest.raises(rows.TableFull, match="more rows than there is room for"):
        apply_parts(find_parts(tables.read_push(("narrow", "wide"), arrays, slots)), reuse=True, at=0)
    assert [each.count for each in tables.list_rows()] == [0] * len(tables.list_rows())
