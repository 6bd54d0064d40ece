"""A job's history as a story, and as a page."""

import dataclasses
import os
import re
from html.parser import HTMLParser
from pathlib import Path
from typing import Literal

import pytest

from elastic_run.launcher.errors import UsageError
from elastic_run.launcher.goodput.words import local_time
from elastic_run.launcher.history.records import (
    SUFFIX,
    Begun,
    Ended,
    Found,
    Kept,
    Point,
    Published,
    Record,
    Snapshot,
    line,
)
from elastic_run.launcher.history.records import read as read_lines
from elastic_run.launcher.report import command
from elastic_run.launcher.report.page import STATES, body, page
from elastic_run.launcher.report.picture import clock
from elastic_run.launcher.report.story import File, Story, find_run_times, tell
from elastic_run.launcher.report.style import CATEGORY_COLOURS, STYLE
from elastic_run.launcher.report.throughput import records_a_second, steps_a_second
from elastic_run.master.data.ledger import Progress
from elastic_run.master.diagnosis.evidence import Frame
from elastic_run.master.diagnosis.findings import Finding
from elastic_run.master.machine.parameter_servers import (
    RankWait,
    ServerMeasure,
    ServerReport,
    ServersStatus,
    ServerStatus,
)
from elastic_run.master.machine.targets import PlannedSize, Target
from elastic_run.master.status import Diagnosis
from elastic_run.rendezvous.reasons import JobOver
from elastic_run.rendezvous.time_split import CATEGORIES, Split

from ....doubles.statuses import STATUS
from ...histories import BEGAN, TRACEBACK, job


def files(**changed: list[Record]) -> list[File]:
    return [File(f"{name}{SUFFIX}", tuple(records)) for name, records in {**job(), **changed}.items()]


def story(*given: File, now: float | None = None) -> Story:
    found = tell(given or files(), now=now)
    assert found is not None
    return found


def test_the_nodes_clocks_are_laid_over_each_other_by_the_headers_that_both_have_seen() -> None:
    found = story()
    assert found.clocks == {"a": 0.0, "b": -100.0}
    assert (found.began, found.until) == (BEGAN, BEGAN + 62.0)


def test_each_interruption_has_its_cause_its_evidence_and_what_it_cost() -> None:
    failure, loss = story().interruptions
    assert (failure.over, failure.next, failure.cause, failure.code) == (1, 2, "failure", "WorkerFailed")
    assert failure.at == pytest.approx(BEGAN + 10.5) and failure.resumed == BEGAN + 12.0 and failure.down == 1.7
    assert [(each.node, each.text) for each in failure.evidence] == [
        ("b", "rank 3 (local 1, pid 4711) exited with code 1: ValueError: no")
    ]
    assert (loss.cause, loss.code, loss.before, loss.after) == ("lost", "NodesLost", 4, 2)
    assert loss.at == BEGAN + 31.0 and loss.down == 3.0 and "node b was lost" in loss.reason


def test_one_nodes_file_alone_tells_the_jobs_rounds() -> None:
    found = story(files()[1])
    assert [each.number for each in found.changes] == [1, 2] and found.state == "open" and not found.over
    assert story(files()[1], now=BEGAN + 1000.0).until == BEGAN + 1000.0


def test_the_newest_of_several_runs_is_told_unless_another_is_named() -> None:
    later = [
        dataclasses.replace(each, **({"run": "second"} if isinstance(each, Published) else {}), unix=each.unix + 5000.0)
        for each in job()["a"]
        if isinstance(each, Begun | Published)
    ]
    both = [*files(), File("later", tuple(later))]
    newest, first = tell(both), tell(both, "run")
    a, b = find_run_times(reversed(both)).items()
    assert a[0] == "run" and b == ("second", (BEGAN + 5001.0, BEGAN + 5061.0))
    assert newest and first and newest.run == "second" and first.run == "run" and len(first.interruptions) == 2
    assert tell([File("empty", ())]) is None


def test_a_failed_job_tells_its_root_cause_first() -> None:
    records = job()["a"]
    end = records[-2]
    assert isinstance(end, Published)
    failure = records[3]
    assert isinstance(failure, Published)
    failed = dataclasses.replace(end, state="failed", incident=failure.incident)
    text = page(story(File("a", (*records[:-2], failed, records[-1]))))
    assert text.index("Root cause") < text.index("World size over time")
    assert "the script&#x27;s own error" in text and "ValueError: no" in text


class Reader(HTMLParser):
    """What would be loaded, run or left open."""

    def __init__(self) -> None:
        super().__init__()
        self.loads: list[str] = []
        self.ids: list[str] = []
        self.targets: list[str] = []
        self.open: list[str] = []
        self.styled: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = dict(attrs)
        self.loads += [f"{tag} {name}={value}" for name, value in attrs if name in ("src", "srcset", "data", "action")]
        self.loads += [f"{tag} {name}" for name, _ in attrs if name.startswith("on")]
        if tag in ("script", "link", "iframe", "object", "img", "base", "form"):
            self.loads.append(tag)
        if (target := given.get("href")) is not None:
            assert target.startswith("#"), target
            self.targets.append(target[1:])
        if "style" in given:
            self.styled.append(tag)
        if given.get("id"):
            self.ids.append(str(given["id"]))
        if tag not in ("meta", "rect", "line", "polygon", "polyline"):
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.handle_starttag(tag, attrs)

    def handle_endtag(self, tag: str) -> None:
        assert self.open and self.open[-1] == tag, (tag, self.open)
        self.open.pop()


def read(text: str) -> Reader:
    reader = Reader()
    reader.feed(text)
    assert not reader.open
    return reader


def test_the_page_is_whole_loads_nothing_and_every_link_has_its_target() -> None:
    found = read(page(story()))
    assert found.loads == [] and found.styled == [], "its policy allows neither"
    assert set(found.targets) <= set(found.ids) and {"i1", "i2", "main"} <= set(found.ids)
    assert len(found.ids) == len(set(found.ids))
    assert not re.search(r"url\(|@import|https?:", STYLE)


def test_the_page_tells_world_size_time_data_nodes_and_last_words() -> None:
    text = page(story())
    for words in (
        "World size over time", "83.3 %", "infrastructure recovery from disruption", "40 of 100 shards done",
        "last words", "a.host", "b.host", "downtime 1.7 s", "1 of 3",
        "Clocks of nodes were moved by: b -100.000 s",
    ):  # fmt: skip
        assert words in text, words


HOSTILE = "</pre><script>alert(1)</script>\"'\x1b[2J\u202e"


def test_what_comes_from_a_worker_or_a_node_is_shown_and_never_obeyed() -> None:
    def forged(record: Record) -> Record:
        match record:
            case Begun():
                return dataclasses.replace(
                    record, job=HOSTILE, node=HOSTILE, host=HOSTILE, script=HOSTILE, version=HOSTILE
                )
            case Ended():
                exit_ = dataclasses.replace(record.exit, message=HOSTILE, traceback=HOSTILE, log=HOSTILE)
                return dataclasses.replace(record, exit=exit_, tail=f"{HOSTILE}\n{HOSTILE}")
            case Published(incident=found) if found:
                exit_ = dataclasses.replace(found.exit, message=HOSTILE, traceback=HOSTILE) if found.exit else None
                reason = found.reason
                if hasattr(reason, "message"):
                    reason = dataclasses.replace(reason, message=HOSTILE)  # type: ignore[type-var]
                changed = dataclasses.replace(found, node=HOSTILE, host=HOSTILE, exit=exit_, reason=reason)
                return dataclasses.replace(record, incident=changed, reason=reason, run=HOSTILE)
            case Published():
                return dataclasses.replace(record, run=HOSTILE)
            case _:
                return record

    made = story(*(File(HOSTILE, tuple(map(forged, records))) for records in job().values()))
    text = page(made)
    found = read(text)
    assert found.loads == [] and "\x1b" not in text and "\u202e" not in text and "<script" not in text
    assert "&lt;script&gt;" in text


def test_every_state_and_category_has_its_look() -> None:
    assert set(CATEGORY_COLOURS) == set(CATEGORIES)
    assert set(STATES) >= {"open", "waiting", "succeeded", "failed", "repeated", "preempted", "timeout"}


def test_a_long_job_is_a_page_that_a_phone_can_hold() -> None:
    records = job()["a"]
    first, second = records[1], records[3]
    assert isinstance(first, Published) and isinstance(second, Published)
    many: list[Record] = [records[0]]
    many += [dataclasses.replace(second, number=number, unix=BEGAN + 60.0 * number) for number in range(1, 1000)]
    text = page(story(File("a", tuple(many))))
    assert len(text) < 1_500_000 and "are not shown" in text
    assert text.count('class="mark"') < 100, "marks that would lie over each other are one"


@pytest.mark.parametrize(
    ("seconds", "words"), [(5.2, "5 s"), (119, "119 s"), (125, "2:05"), (7384, "2:03 h"), (93784, "1 d 02:03")]
)
def test_times_on_the_axis_are_short(seconds: float, words: str) -> None:
    assert clock(seconds) == words


def test_the_command_makes_one_page_of_a_folder(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for name, records in job().items():
        (tmp_path / f"{name}{SUFFIX}").write_bytes(b"".join(map(line, records)) + b'{"kind":"Beg')
    made = tmp_path / "page.html"
    assert command.main([str(tmp_path), "-o", str(made)]) == 0
    began, until = map(local_time, (BEGAN, BEGAN + 62.0))
    assert f"job job, {began} to {until}: 3 rounds, 2 interruptions: {made}" in capsys.readouterr().err
    text = made.read_text(encoding="utf-8")
    assert re.search(rf'from <time datetime="{re.escape(began)}">.* to <time datetime="{re.escape(until)}">', text)
    assert TRACEBACK.splitlines()[1].strip().split(",")[0][:4] in text and "2 lines could not be read" in text
    os.mkfifo(tmp_path / f"pipe{SUFFIX}")
    (tmp_path / f"zero{SUFFIX}").symlink_to("/dev/zero")
    (tmp_path / f"folder{SUFFIX}").mkdir()
    assert command.main([str(tmp_path), "-o", "-"]) == 0
    assert capsys.readouterr().out == text


@pytest.mark.parametrize("unix", [-1e300, 1e300, 1e12])
def test_a_time_that_no_calendar_has_is_shown_as_that(unix: float) -> None:
    begun, *others = job()["a"]
    assert isinstance(begun, Begun)
    records = (dataclasses.replace(begun, unix=unix), *others)
    assert "unknown time" in page(story(File("a", records))) or unix > 0


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        ((), "needs a FILE or a DIR"),
        (("nowhere",), "cannot be read: No such file or directory"),
        ((".", "--run=x"), "there is no such run; there are none"),
        ((".",), "tells of a job"),
        (("--what",), "does not take --what"),
        ((".", "-o"), "needs a value"),
    ],
)
def test_a_wrong_command_is_refused(
    words: tuple[str, ...], sentence: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UsageError, match=sentence):
        command.main(words)


def test_the_body_of_a_job_that_has_not_begun_is_a_page() -> None:
    found = tell([File("a", (job()["a"][0],))])
    assert found is not None and "waits for nodes" in body(found)


def diagnosis(round: int, strength: Literal["strong", "weak"] = "weak") -> Diagnosis:
    frames = (Frame("/x/torch/distributed.py", 9, "all_reduce"), Frame("/home/train.py", 12, "read_<b>sample"))
    finding = Finding(
        "slow-data", 3, "b", strength, "read_sample, train.py:12", (0, 1, 2), "all_reduce", 12.0, ("a <i>line",), round,
        frames,
    )  # fmt: skip
    return Diagnosis.of(finding, 2.0)


def test_what_a_diagnosis_says_now_comes_first_and_leads_to_the_rank() -> None:
    records = job()["a"][:-2]  # it still trains
    at = next(index for index, each in enumerate(records) if isinstance(each, Snapshot))
    snapshot = records[at]
    assert isinstance(snapshot, Snapshot)
    status = dataclasses.replace(snapshot.status, diagnosis=(diagnosis(3),))
    told = story(*files(a=[*records[:at], Snapshot(BEGAN + 50.0, status)]), now=BEGAN + 55.0)
    text = body(told, live=True)
    assert text.index("Why the job is slow") < text.index("goodput") < text.index("World size over time")
    assert "rank 3 on node b waits for its data for longer than the others" in text
    assert "read_&lt;b&gt;sample  /home/train.py:12" in text and "a &lt;i&gt;line" in text
    assert '<a href="rank?number=3">Look at rank 3 now</a>' in text and '<a href="rank?number=1">1</a>' in text
    assert "rank?number" not in body(told), "a file leads nowhere"


def test_what_a_diagnosis_had_found_stands_with_the_interruption_that_followed() -> None:
    found = [Found(BEGAN + 25.0, diagnosis(2)), Found(BEGAN + 28.0, diagnosis(2, "strong"))]
    records = job()["a"]
    told = story(*files(a=[*records[:7], *found, *records[7:]]))
    failure, loss = told.interruptions
    assert not failure.found
    (seen,) = loss.found
    assert seen.diagnosis.finding.strength == "strong", "each once, as it was said last"
    interruption = page(told).partition('data-key="i2"')[2].partition("</details>")[0]
    assert (
        "Diagnosis" in interruption
        and "read_&lt;b&gt;sample" in interruption
        and "ranks 0-2 in all_reduce" in interruption
    )


def test_a_history_keeps_a_finding_once_until_its_evidence_is_another() -> None:
    kept = Kept()
    status = dataclasses.replace(STATUS, diagnosis=(diagnosis(2),))
    for _ in range(2):
        for each in kept.news(status.diagnosis, BEGAN + 10.0):
            kept.add(each)
    assert [each.unix for each in kept.newest[Found]] == [BEGAN + 8.0]
    (again,) = kept.news((diagnosis(2, "strong"),), BEGAN + 20.0)
    assert list(read_lines([line(again)])) == [again]
    kept.add(again)
    killed = dataclasses.replace(again.diagnosis.finding, done="killed rank 3 (--on-hang=restart)")
    (done,) = kept.news((Diagnosis.of(killed, 0.0),), BEGAN + 20.5)
    kept.add(done)
    assert not list(kept.news((Diagnosis.of(killed, 0.0), diagnosis(2, "strong")), BEGAN + 21.0))
    assert "killed rank 3 (--on-hang=restart)" in page(story(File("a", (*job()["a"], *kept.newest[Found]))))


def point(at: float, records: int, steps: float | None = None) -> Point:
    progress = Progress("images", "checkpoint", 100, 0, 0, None, records)
    return Point(BEGAN + at, 1, 4, Split(), (progress,), steps)


def test_throughput_is_what_was_done_between_two_points_and_never_less_than_nothing() -> None:
    points = [point(0, 0), point(10, 100), point(20, 300), point(30, 250), point(40, 350)]
    assert records_a_second(points) == [(BEGAN, 10.0), (BEGAN + 10, 20.0), (BEGAN + 20, 0.0), (BEGAN + 30, 10.0)]
    assert steps_a_second(points) == []


def test_points_that_are_near_each_other_are_one_value() -> None:
    points = [point(at, 10 * at, 2.0) for at in range(12)]
    assert records_a_second(points) == [(BEGAN, 10.0), (BEGAN + 5, 10.0), (BEGAN + 10, 10.0)]
    assert {value for _, value in steps_a_second(points)} == {2.0}
    assert records_a_second(points[:1]) == [] == steps_a_second(points[:1])


def test_the_page_has_throughput_below_the_size_of_the_world() -> None:
    records: list[Record] = [*job()["a"], *(point(20.0 + at, 10 * at, 3.0) for at in range(0, 40, 10))]
    text = page(story(*files(a=records)))
    world = text.partition("World size over time")[2].partition("</section>")[0]
    assert "Records a second" in world and "Steps a second" in world


def test_the_goodput_of_the_page_is_that_of_the_summary_though_the_script_tells_of_spans() -> None:
    spent = Split(productive=60, data_loading=30, wasted_progress_from_disruption=10)
    assert "<b>90.0 %</b><span>goodput</span>" in body(dataclasses.replace(story(), split=spent))


def test_what_the_plan_said_last_is_on_the_page_of_a_job_that_is_over() -> None:
    records = job()["a"]
    snapshot = [each for each in records if isinstance(each, Snapshot)][-1]
    plans = [Target("", nodes, PlannedSize(f"{nodes} nodes: 1 more node would add <3 %")) for nodes in (1, 2)]
    seen = [
        Snapshot(snapshot.unix + number, dataclasses.replace(snapshot.status, targets=(target,)))
        for number, target in enumerate((*plans, Target("", 0, JobOver("succeeded"))), 1)
    ]
    made = page(story(*files(a=[*records, *seen])))
    assert "<p>Plan: 2 nodes: 1 more node would add &lt;3 %.</p>" in made and "Plan:" not in page(story())


def test_parameter_servers_and_who_waits_for_them_are_on_the_page() -> None:
    report = ServerReport(0, "x", "stopped", slots=1024, bare=1024, resident=5_000_000, measure=ServerMeasure())
    servers = ServersStatus((ServerStatus("<b>", report, 2.0, 1.0, 0.001),), (RankWait(1, (0,), 9.0),))
    records = job()["a"]
    snapshots = [each for each in records if isinstance(each, Snapshot)]
    seen = dataclasses.replace(snapshots[-1].status, parameter_servers=servers)
    made = page(story(*files(a=[*records, Snapshot(snapshots[-1].unix + 1.0, seen)])))
    assert '<h2 id="servers">Parameter servers</h2>' in made and "<td>&lt;b&gt;</td><td>stopped</td>" in made
    assert "rank 1 waits for parameter server 0 on node &lt;b&gt;, for 9 s" in made
    assert "<td>2 (1 ms)</td><td>1</td>" in made and "1024 slots have no second copy" in made
    assert "Parameter servers" not in page(story())
