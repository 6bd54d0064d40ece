"""The trace: each line an event that viewers can read, whoever writes it; and nothing at all without a file."""

import itertools
import json
import os
import re
import stat
import textwrap
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import elastic_run
from elastic_run.adapters.contract import Round, Worker
from elastic_run.adapters.environment import Told, worker_environment
from elastic_run.adapters.registry import adapter
from elastic_run.elastic_agent.agent_trace import Recorder, begin
from elastic_run.rendezvous.header import Header
from elastic_run.rendezvous.host.trace_file import AGENT, LINE_BYTES, Trace
from elastic_run.rendezvous.member import Exit, Fingerprint
from elastic_run.rendezvous.ranks import Assignment
from elastic_run.rendezvous.reasons import AllJoined

PAGE = Path(__file__).parents[4] / "docs" / "observe.md"

Event = dict[str, Any]  # Any: JSON


class Clock:
    """Stands still until it is told to go on."""

    def __init__(self) -> None:
        self.seconds = 100.0

    def __call__(self) -> float:
        return self.seconds


@pytest.fixture
def said() -> list[str]:
    """What a person was told."""
    return []


@pytest.fixture
def clock() -> Clock:
    """The trace's."""
    return Clock()


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """The trace's file, which is not there yet."""
    return tmp_path / "trace.json"


@pytest.fixture
def trace(file: Path, said: list[str], clock: Clock) -> Iterator[Trace]:
    """An agent's trace."""
    it = Trace(str(file), "a", said.append, create=True, now=clock)
    yield it
    it.close()


def events(file: Path) -> list[Event]:
    """All of them, read line by line, as the user guide does."""
    first, *lines = file.read_text(encoding="utf-8").split("\n")[:-1]
    assert first == "["
    assert all(line.endswith(",") for line in lines)
    return [json.loads(line[:-1]) for line in lines]


def told(file: Path, *rows: str) -> list[Event]:
    """The events of those rows (none: of all) without the names and the clock."""
    found = events(file)
    names = {event["tid"]: event["args"]["name"] for event in found if event["name"] == "thread_name"}
    return [
        event
        for event in found
        if event["ph"] != "M" and event["name"] != "clock" and (not rows or names[event["tid"]] in rows)
    ]


def header(number: int = 1, state: Any = "open") -> Header:
    return Header(
        number, "run", state, "failure", AllJoined(2), Fingerprint("", (), "1", "1", "0"), nodes=1, world_size=2
    )


def assignment() -> Assignment:
    return Assignment(1, "a", "i", 0, 1, first_rank=0, nproc=2, world_size=2, role_first_rank=0, role_world_size=2)


def test_the_file_is_an_array_that_only_lacks_its_end(trace: Trace, file: Path) -> None:
    trace.instant("one", AGENT)
    trace.since(99.5, "two", AGENT, round=1)
    whole = json.loads(file.read_text(encoding="utf-8").rstrip(",\n") + "]")
    assert whole == events(file)
    assert [event["name"] for event in whole] == ["process_name", "thread_name", "clock", "one", "two"]


def test_times_are_microseconds_and_the_clock_tells_those_of_the_wall(trace: Trace, file: Path, clock: Clock) -> None:
    clock.seconds = 100.000_001_5
    trace.instant("one", AGENT)
    trace.since(100.0, "two", AGENT)
    one, two = told(file)
    assert (one["ph"], one["s"], one["ts"]) == ("i", "t", 100_000_001.5)
    assert (two["ph"], two["ts"], two["dur"]) == ("X", 100_000_000.0, 1.5)
    wall = next(event for event in events(file) if event["name"] == "clock")
    assert wall["ts"] == 100_000_000.0 and wall["args"]["unix"] > 1.7e9


def test_spans_that_meet_do_not_overlap(trace: Trace, file: Path) -> None:
    ends = [13992229.7293921 + 0.000_187_993_7 * number for number in range(100)]
    for begun, ended in itertools.pairwise(ends):
        trace.since(begun, "step", AGENT, until=ended)
    steps = told(file)
    for before, after in itertools.pairwise(steps):
        assert round(before["ts"] + before["dur"], 3) == after["ts"]


def test_a_span_says_by_what_it_was_ended(trace: Trace, file: Path, clock: Clock) -> None:
    with pytest.raises(ValueError, match="no such"), trace.span("load", "rank 0", step=7, until="the end"):
        clock.seconds += 2
        raise ValueError("no such file")
    (event,) = told(file)
    assert event["dur"] == 2_000_000
    assert event["args"] == {"step": 7, "until": "the end", "raised": "ValueError: no such file"}


def test_each_row_is_named_once_by_a_number_of_its_own(trace: Trace, file: Path, said: list[str]) -> None:
    other = Trace(str(file), "b", said.append, create=True)
    for it in (trace, other):
        for row in ("rank 0", "rank 1", "rank 0"):
            it.instant("x", row)
    other.close()
    names = [(event["pid"], event["tid"], event["args"]["name"]) for event in events(file) if event["ph"] == "M"]
    assert len(names) == 8  # two nodes, and three rows on each
    assert len({tid for _, tid, name in names if not name.startswith("node")}) == 6
    assert len({pid for pid, _, _ in names}) == 2


def test_whatever_is_told_fits_in_one_line_of_json(trace: Trace, file: Path) -> None:
    odd = [
        "x" * 9999,
        "\x00" * 9999,
        "𝄞" * 9999,
        "\udcff",
        "a\nb",
        "\u2028",
        '"\\',
        float("nan"),
        [1],
        None,
        True,
        2**70,
    ]
    for value in odd:
        trace.instant(str(value), str(value), value=value)
        trace.instant("many", AGENT, **{f"{number} {value}": value for number in range(20)})
    assert len(told(file)) == 2 * len(odd)
    assert all(len(line) <= LINE_BYTES for line in file.read_bytes().splitlines(keepends=True))
    assert any("left out" in event.get("args", {}) for event in told(file))


def test_writers_do_not_mix_their_lines(trace: Trace, file: Path) -> None:
    def write(row: str) -> None:
        own = Trace(str(file), "a")
        for number in range(300):
            own.instant(row * 20, row, number=number)
        own.close()

    threads = [threading.Thread(target=write, args=(f"rank {rank}",)) for rank in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for rank in range(4):
        assert [event["args"]["number"] for event in told(file, f"rank {rank}")] == list(range(300))


def test_a_second_run_goes_on_in_the_same_file(trace: Trace, file: Path, said: list[str]) -> None:
    trace.instant("one", AGENT)
    trace.close()
    trace.instant("nothing", AGENT)
    again = Trace(str(file), "a", said.append, create=True)
    again.instant("two", AGENT)
    again.close()
    assert [event["name"] for event in told(file)] == ["one", "two"]
    assert said == []


def test_without_a_file_nothing_is_opened_and_nothing_said(said: list[str]) -> None:
    before = set(Path("/proc/self/fd").iterdir())
    it = Trace(None, "a", said.append, create=True)
    recorder = Recorder(it)
    recorder.ready()
    recorder.registered()
    recorder.starting()
    recorder.started(header(), assignment())
    recorder.exits([Exit(1, 0, 0, 7, None, 9)])
    recorder.header(header(2), mine=True)
    with recorder.span("stop"):
        it.since(0.0, "x", AGENT)
    begin(it, 0.0)
    it.close()
    assert recorder.file == ""
    assert set(Path("/proc/self/fd").iterdir()) <= before  # what an earlier test left may be closed meanwhile
    assert said == []


def test_a_span_of_nothing_is_made_of_nothing() -> None:
    it = Trace()
    assert type(it.span("x", AGENT)).__name__ == "nullcontext"
    assert type(elastic_run.trace.span("x")).__name__ == "nullcontext"


@pytest.mark.parametrize(
    ("path", "why"), [("/dev/full", "No space left on device"), ("/proc/nothing", "No such file or directory")]
)
def test_a_file_that_cannot_be_written_is_said_once(path: str, why: str, said: list[str]) -> None:
    it = Trace(path, "a", said.append, create=True)
    it.instant("x", AGENT)
    with it.span("y", AGENT):
        it.since(0.0, "z", AGENT)
    assert it.file is None
    assert said == [f"the trace {path} cannot be written ({why}): no more events are recorded"]


def test_a_disk_that_becomes_full_is_said_once(trace: Trace, said: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    def takes_half(_: int, data: bytes) -> int:
        return len(data) // 2

    monkeypatch.setattr(os, "write", takes_half)
    for _ in range(3):
        trace.instant("x", "rank 0")
    assert len(said) == 1 and "No space left on device" in said[0]


def test_nobody_waits_for_the_reader_of_a_pipe(tmp_path: Path, said: list[str]) -> None:
    os.mkfifo(tmp_path / "pipe")
    Trace(str(tmp_path / "pipe"), "a", said.append, create=True)
    assert len(said) == 1 and stat.S_ISFIFO((tmp_path / "pipe").stat().st_mode)


def test_a_number_that_is_another_file_now_is_not_written_to(file: Path, tmp_path: Path, said: list[str]) -> None:
    Trace(str(file), "a", create=True).close()
    it = Trace(str(file), "a", said.append)
    number = next(int(each.name) for each in Path("/proc/self/fd").iterdir() if each.resolve() == file)
    os.close(number)
    checkpoint = os.open(tmp_path / "checkpoint", os.O_CREAT | os.O_WRONLY)
    try:
        assert checkpoint == number
        it.instant("x", AGENT)
        it.instant("x", AGENT)
        assert (tmp_path / "checkpoint").read_bytes() == b""
        os.fstat(checkpoint)  # and it is still open
    finally:
        os.close(checkpoint)
    assert len(said) == 1


def test_a_number_that_is_another_file_now_is_not_closed(file: Path, tmp_path: Path) -> None:
    Trace(str(file), "a", create=True).close()
    it = Trace(str(file), "a")
    number = next(int(each.name) for each in Path("/proc/self/fd").iterdir() if each.resolve() == file)
    with (tmp_path / "checkpoint").open("wb") as checkpoint:
        os.dup2(checkpoint.fileno(), number)
    it.close()
    os.close(number)  # which raises where it is closed already


def test_the_page_s_code_loads_files_and_lays_them_beside_each_other(
    trace: Trace, file: Path, tmp_path: Path, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock.seconds += 5
    trace.instant("here", AGENT)
    later = Clock()
    later.seconds = 7000.0  # another machine, which has been up for longer
    other = Trace(str(tmp_path / "host2.json"), "b", create=True, now=later)
    later.seconds += 6
    other.instant("there", AGENT)
    other.close()
    file.rename(tmp_path / "host1.json")
    section = PAGE.read_text(encoding="utf-8").partition("\n## A timeline of each recovery\n")[2].partition("\n## ")[0]
    blocks = re.findall(r"(?:^    .*\n|^\n)+", section, flags=re.MULTILINE)
    code = next(block for block in blocks if "def together" in block)
    monkeypatch.chdir(tmp_path)
    exec(textwrap.dedent(code), {})
    here, there = told(tmp_path / "job.json")
    assert (here["name"], here["ts"], there["name"]) == ("here", 105e6, "there")
    assert 0 < there["ts"] - here["ts"] - 1e6 < 30e6  # a second, and what passed between the two clocks


# -- the agent --------------------------------------------------------------------------------------------------------


def test_a_recovery_is_told_from_the_evidence_to_the_new_workers(trace: Trace, file: Path, clock: Clock) -> None:
    recorder = Recorder(trace)
    recorder.ready()
    recorder.registered()
    recorder.header(header(1), mine=True)
    recorder.starting()
    recorder.started(header(1), assignment())
    clock.seconds = 110.0
    died = Exit(1, 1, 1, 7, None, 9)
    recorder.exits([died])
    clock.seconds = 110.5
    recorder.header(header(2), mine=True)
    with recorder.span("stop", round=1):
        clock.seconds = 111.0
    recorder.exits([died, Exit(1, 0, 0, 8, None, 9, stopped=True)])
    recorder.starting()
    recorder.started(header(2), assignment())
    recovery = [event for event in told(file, "agent", "rounds") if event["ts"] >= 110e6]
    assert [event["name"] for event in recovery] == ["detect", "decide", "stop", "start"]
    detect, decide, stop, start = recovery
    assert detect["args"] == {"round": 1, "rank": 1, "pid": 7, "signal": "SIGKILL"}
    assert (decide["ts"], decide["dur"]) == (110e6, 0.5e6)
    why = {"cause": "failure", "code": "AllJoined", "reason": "all 2 nodes have joined"}
    assert decide["args"] == {"round": 2, "state": "open", "nodes": 1, "workers": 2, **why}
    assert (stop["ts"], stop["dur"], stop["args"]) == (110.5e6, 0.5e6, {"round": 1})
    assert (start["ts"], start["args"]) == (111e6, {"round": 2, "run": "run", "ranks": "0-1", **why})
    lives = [told(file, f"rank {rank}") for rank in (0, 1)]
    assert [[(life["name"], life["ts"], life["dur"]) for life in of] for of in lives] == [
        [("round 1", 100e6, 11e6)],
        [("round 1", 100e6, 10e6)],
    ]


def test_a_node_without_evidence_of_its_own_tells_the_decision_without_length(
    trace: Trace, file: Path, clock: Clock
) -> None:
    recorder = Recorder(trace)
    recorder.registered()
    clock.seconds = 103.0
    recorder.header(header(1), mine=True)
    clock.seconds = 110.0
    recorder.header(header(2), mine=True)
    assert [(event["name"], event["ts"], event["dur"]) for event in told(file, "rounds")] == [
        ("decide", 100e6, 3e6),  # it waited for its first round since it had registered
        ("decide", 110e6, 0),
    ]


def test_a_node_that_waits_tells_how_long(trace: Trace, file: Path, clock: Clock) -> None:
    recorder = Recorder(trace)
    recorder.registered()
    recorder.header(header(2, "waiting"), mine=False)
    clock.seconds = 160.0
    recorder.header(header(3), mine=True)
    assert [event["dur"] for event in told(file, "rounds")] == [0, 60e6]


def test_what_was_before_the_trace_is_told_as_well(file: Path, said: list[str]) -> None:
    it = Trace(str(file), "a", said.append, create=True)
    begin(it, it.now())
    it.close()
    names = [event["name"] for event in told(file)]
    assert names[-1] == "options"
    assert set(names) <= {"interpreter", "options"}  # the interpreter of these tests may be old


# -- scripts ----------------------------------------------------------------------------------------------------------


def test_a_script_marks_the_row_of_its_rank(trace: Trace, file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ELASTIC_RUN_TRACE", str(file))
    monkeypatch.setenv("ELASTIC_RUN_TRACE_NODE", "a")
    monkeypatch.setenv("RANK", "3")
    elastic_run.trace.mark("restore", step=120, name="any")
    with elastic_run.trace.span("checkpoint", row="any"):
        pass
    restore, checkpoint = told(file, "rank 3")
    assert (restore["name"], restore["ph"], restore["args"]) == ("restore", "i", {"step": 120, "name": "any"})
    assert (checkpoint["name"], checkpoint["ph"], checkpoint["args"]) == ("checkpoint", "X", {"row": "any"})
    assert {event["pid"] for event in events(file)} == {restore["pid"]}


def test_other_threads_of_a_script_have_rows_of_their_own(
    trace: Trace, file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ELASTIC_RUN_TRACE", str(file))
    monkeypatch.setenv("ELASTIC_RUN_TRACE_NODE", "a")
    monkeypatch.setenv("RANK", "0")
    thread = threading.Thread(target=elastic_run.trace.mark, args=("saved",), name="saver")
    thread.start()
    thread.join()
    assert [event["name"] for event in told(file, "rank 0, saver")] == ["saved"]


def test_workers_are_told_of_the_trace_only_while_there_is_one() -> None:
    torch, round, worker = adapter("torch"), Round("j", 1, 1, 1, "h", 1), Worker(0, 0, 1, "a")
    around = {"ELASTIC_RUN_TRACE": "/of/another/launcher", "ELASTIC_RUN_TRACE_NODE": "b"}
    names = set(around)
    assert not names & set(worker_environment(torch, round, worker, around, Told()))
    found = worker_environment(torch, round, worker, around, Told(trace="/t"))
    assert (found["ELASTIC_RUN_TRACE"], found["ELASTIC_RUN_TRACE_NODE"]) == ("/t", "a")
