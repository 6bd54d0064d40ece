"""Shards of streams: alone, and with other ranks, whose agent is a thread in this process."""

import threading
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

import elastic_run
from elastic_run.adapters.client.context import AGENT, RANK_VARIABLES, ROUND
from elastic_run.adapters.streams import watched_source
from elastic_run.adapters.streams.stream_shards import StreamShard, StreamShards
from elastic_run.exceptions import BadDataset, BadShardsState, BadSource, OffsetsGone, ShardsMisused, ShardsRefused

from ....doubles.ledger_agent import ENOUGH, Agent, environment_of, listening
from ....doubles.record_log import RecordLog

pytestmark = pytest.mark.timeout(60)

SOON = 0.05
"""Seconds after which a test takes it that nothing comes."""


@pytest.fixture(autouse=True)
def no_launcher(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in (*RANK_VARIABLES, ROUND, AGENT):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def log(tmp_path: Path) -> RecordLog:
    return RecordLog(tmp_path / "log")


@pytest.fixture
def agent() -> Iterator[Agent]:
    with listening() as found:
        yield found


def of_rank(agent: Agent, log: RecordLog, rank: int, size: int, round: int = 1, **more: Any) -> StreamShards:
    environment = environment_of(rank, size, round, f"@{agent.name}")
    return StreamShards("clicks", log, shard_size=10, environment=environment, **more)


def offsets_of(shards: list[StreamShard]) -> list[tuple[str, int]]:
    return [(shard.partition, record.offset) for shard in shards for record in shard.records]


def taken(data: StreamShards, seconds: float = ENOUGH) -> StreamShard:
    shard = data.next_within(seconds)
    assert shard is not None
    return shard


def test_a_backlog_is_read_once_and_the_loop_ends(log: RecordLog) -> None:
    log.append("a", 25)
    log.append("b", 7)
    seen: list[StreamShard] = []
    with elastic_run.data.stream("clicks", log, shard_size=10, follow=False, commit="ack") as data:
        for shard in data:
            log.append("a", 1)  # after the first look: no part of the backlog
            seen.append(shard)
            assert [record.value for record in shard.records] == [f"{shard.partition}:{each}" for each in shard.indices]
            shard.done()
        assert data.ended
    assert sorted(offsets_of(seen)) == [("a", offset) for offset in range(25)] + [("b", offset) for offset in range(7)]
    assert [shard.key for shard in seen][:2] == ["a-00000000000000000000", "a-00000000000000000010"]


def test_it_goes_on_with_what_comes_and_finds_new_partitions_until_it_is_stopped(log: RecordLog) -> None:
    with elastic_run.data.stream("clicks", log, shard_size=10, commit="ack") as data:
        assert data.next_within(SOON) is None and not data.ended
        log.append("a", 3)
        first = taken(data)
        assert offsets_of([first]) == [("a", 0), ("a", 1), ("a", 2)]
        first.done()
        threading.Timer(0.1, log.append, ("b", 2)).start()
        second = next(data)  # waits
        assert offsets_of([second]) == [("b", 0), ("b", 1)]
        second.done()
        threading.Timer(0.1, data.stop).start()
        assert list(data) == [] and data.ended


def test_a_source_without_partitions_is_no_batch(log: RecordLog) -> None:
    with (
        elastic_run.data.stream("clicks", log, shard_size=10, follow=False) as data,
        pytest.raises(BadSource, match="has no partition, and follow=False reads only what is there"),
    ):
        data.next_within(ENOUGH)


def test_a_person_is_told_what_a_source_is_waited_for(
    log: RecordLog, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(watched_source, "QUIET", 0.0)
    monkeypatch.setattr(watched_source, "REMINDER", 0.0)
    with elastic_run.data.stream("clicks", log, shard_size=10) as data:
        assert data.next_within(SOON) is None
        assert (
            "rank 0 waits: the source of dataset 'clicks' gives nothing: it has no partition" in capsys.readouterr().err
        )
        log.set_away(True)
        while "gives nothing: the log is away" not in capsys.readouterr().err:
            data.next_within(SOON)


def test_two_ranks_get_each_offset_once_though_the_source_was_away(agent: Agent, log: RecordLog) -> None:
    log.append("a", 200)
    log.append("b", 150)
    used: Counter[tuple[str, int]] = Counter()
    lock = threading.Lock()

    def work(rank: int) -> None:
        with of_rank(agent, log, rank, 2, commit="ack", follow=False) as data:
            for shard in data:
                if shard.index == 6:
                    log.set_away(True)
                    threading.Timer(0.3, log.set_away, (False,)).start()
                with lock:
                    used.update(offsets_of([shard]))
                shard.done()

    with ThreadPoolExecutor(2) as ranks:
        for each in [ranks.submit(work, rank) for rank in range(2)]:
            each.result(ENOUGH)
    assert used == Counter([("a", offset) for offset in range(200)] + [("b", offset) for offset in range(150)])
    assert agent.ledger and agent.ledger.progress.lag == 0 and agent.ledger.progress.records == 350


def test_what_another_rank_gives_back_is_found_however_shortly_it_is_waited_for(agent: Agent, log: RecordLog) -> None:
    log.append("a", 10)
    other, data = (of_rank(agent, log, rank, 2, commit="ack") for rank in (1, 0))
    taken(other)
    assert data.next_within(SOON) is None
    other.close()
    while (shard := data.next_within(SOON)) is None:
        pass
    assert len(shard.records) == 10
    data.close()


def test_a_checkpoint_holds_the_position_in_the_middle_of_a_shard(log: RecordLog) -> None:
    log.append("a", 30)
    log.gap = 5  # offsets 0, 5, 10, ... have no record
    data = elastic_run.data.stream("clicks", log, shard_size=10)
    first, second = next(data), next(data)
    first.done()
    second.progress(3)
    assert [record.offset for record in second.records[:3]] == [11, 12, 13]
    position = data.state_dict(step=1)
    data.close()

    again = elastic_run.data.stream("clicks", log, shard_size=10, follow=False)
    again.load_state_dict(position)
    rest: list[int] = []
    for shard in again:
        rest += [record.offset for record in shard.records]
        shard.done()
    assert rest == [offset for offset in range(14, 30) if offset % 5]

    other = elastic_run.data.stream("clicks", RecordLog(log.folder.with_name("other")), shard_size=10)
    with pytest.raises(BadShardsState, match="has source="):
        other.load_state_dict(position)
    for field, value in [("partitions", [["a", 3, 1]]), ("todo", [["a", 0, 5, 5]]), ("lost", -1), ("todo", 7)]:
        with pytest.raises(BadShardsState, match="damaged"):
            again._layout.restored({**position, field: value})  # pyright: ignore[reportPrivateUsage]


def test_what_is_gone_ends_the_loop_or_is_counted_once(agent: Agent, log: RecordLog) -> None:
    log.append("a", 40)
    with of_rank(agent, log, 0, 1, commit="ack") as data:
        shard = taken(data)
        log.forget_before("a", 4)
        with pytest.raises(OffsetsGone, match=r"offsets 0 to 3 of partition 'a' are gone.*lost=\"skip\""):
            _ = shard.records
    assert agent.ledger
    log.forget_before("a", 25)
    with (
        of_rank(agent, log, 0, 1, round=2, commit="ack") as data,
        pytest.raises(ShardsRefused, match=r"offsets \d+ to 24"),
    ):
        taken(data)

    with of_rank(agent, log, 0, 1, round=3, commit="ack", lost="skip") as data:
        shards = list[StreamShard]()
        while shard := data.next_within(SOON):
            assert offsets_of([shard]) == [("a", offset) for offset in range(max(shard.start, 25), shard.stop)]
            shard.done()
            shards.append(shard)
    assert next(shard.start for shard in shards if shard.records) == 25
    assert agent.ledger.progress.lost == 25


def test_what_a_stream_cannot_do_is_refused_in_words(log: RecordLog) -> None:
    log.append("a", 10)
    source: Any = log
    with pytest.raises(BadSource, match="StreamSource"):
        elastic_run.data.stream("clicks", source.folder, shard_size=10)
    several: list[dict[str, Any]] = [
        {"start": "latest", "follow": False},
        {"lost": "ignore"},
        {"commit": "often"},
        {"shard_size": 0},
    ]
    for wrong in several:
        with pytest.raises(BadDataset):
            StreamShards("clicks", log, **dict[str, Any](shard_size=10) | wrong)
    data = elastic_run.data.stream("clicks", log, shard_size=10)
    with pytest.raises(ShardsMisused, match="has no parts"):
        data.part(1)
    with pytest.raises(ShardsMisused, match="which has 10 records"):
        next(data).progress(11)
