"""The last lines on the terminal and the summary as JSON."""

import dataclasses
import json
import os
from pathlib import Path

import pytest

from elastic_run.elastic_agent.agent import Result
from elastic_run.elastic_agent.timeline import Timeline
from elastic_run.launcher import summary
from elastic_run.launcher.options.parse import parse
from elastic_run.launcher.settings import Options
from elastic_run.launcher.summary import LINES
from elastic_run.master.diagnosis.findings import Finding
from elastic_run.rendezvous.header import Header, HeaderState, Incident, Tally
from elastic_run.rendezvous.host.trace_file import Trace
from elastic_run.rendezvous.member import Exit, Fingerprint
from elastic_run.rendezvous.reasons import AllJoined, RestartsSpent, WorkerFailed
from elastic_run.rendezvous.time_split import Split

FINGERPRINT = Fingerprint("train.py", (), "2:4", "1", "0")
TRACE = "Traceback (most recent call last):\n" + "".join(
    f'  File "train.py", line {number}, in f{number}\n    f{number + 1}()\n' for number in range(30)
)
RAISED = Exit(
    3, 5, 1, 4711, code=1, message="ValueError: no", traceback=f"{TRACE}ValueError: no\n", log="/logs/5/stderr.log"
)
KILLED = Exit(3, 5, 1, 4711, signal=9)
OUT_OF_MEMORY = dataclasses.replace(KILLED, message="killed by the kernel: out of memory (oom_kill rose by 1)")


@pytest.fixture
def options() -> Options:
    return parse(["--nnodes=2:4", "--rdzv-id=job", "--rdzv-endpoint=127.0.0.1:2379", "-m", "json.tool"], {})


def result(code: int, state: HeaderState = "failed", exit_: Exit | None = None, reason: str = "because") -> Result:
    incident = None
    if exit_:
        incident = Incident(3, "failure", WorkerFailed("b", 5, None, 9, ""), node="b", host="b.host", exit=exit_)
    tally = Tally(failures=1, lost=2)
    spent = {"split": Split(productive=3_000_000, initialization=1_000_000)}
    header = Header(4, "run", state, "failure", AllJoined(2), FINGERPRINT, tally=tally, incident=incident, **spent)
    timeline = Timeline(0.0)
    timeline.up(2.0, dataclasses.replace(header, state="open"))
    timeline.down(12.0)
    return Result(code, reason, header, "a", (), timeline)


def last_lines(options: Options, found: Result, host: str) -> list[str]:
    return summary.last_lines(options, found, host, summary.spent(options, found))


def write_json(path: Path, options: Options, found: Result) -> None:
    summary.write_json(path, options, found, summary.spent(options, found))


def test_a_success_is_told_in_two_lines(options: Options) -> None:
    lines = last_lines(options, result(0, "succeeded"), "a.host")
    assert len(lines) == 2
    assert "job job succeeded" in lines[0]


def test_where_something_took_time_from_training_a_line_says_what(options: Options, tmp_path: Path) -> None:
    found = result(0, "succeeded")
    assert found.header
    split = Split(productive=3_000_000, infrastructure_recovery_from_disruption=1_000_000)
    found = dataclasses.replace(found, header=dataclasses.replace(found.header, split=split))
    assert len(last_lines(options, found, "a.host")) == 2, "of a short job it says little"
    split = Split(productive=90_000_000, infrastructure_recovery_from_disruption=30_000_000)
    assert found.header
    longer = dataclasses.replace(found.header, split=split)
    assert last_lines(options, dataclasses.replace(found, header=longer), "a.host")[1] == (
        "goodput: 75.0 % of 2.0 min; lost: infrastructure recovery from disruption 30.0 s"
    )
    trace = Trace(str(tmp_path / "trace.json"), "a", create=True)
    trace.record(0.0, 0.5, "data_loading", "rank 0", {})
    trace.close()
    traced = dataclasses.replace(options, output=dataclasses.replace(options.output, trace=tmp_path / "trace.json"))
    write_json(tmp_path / "summary.json", traced, found)
    seconds = json.loads((tmp_path / "summary.json").read_text())["time_seconds"]
    assert {name: value for name, value in seconds.items() if value} == {
        "productive": 2.5,
        "data_loading": 0.5,
        "infrastructure_recovery_from_disruption": 1.0,
    }


def test_the_totals_name_what_happened_and_the_time_with_and_without_workers(options: Options) -> None:
    totals = last_lines(options, result(0, "succeeded"), "a.host")[-1]
    assert "1 round " in totals and "1 worker failure," in totals and "2 lost nodes" in totals
    assert "ran for 10.0 s" in totals and "downtime 0.0 s" in totals
    assert "arrival" not in totals


def test_where_nothing_happened_the_totals_are_those_of_this_node(options: Options) -> None:
    quiet = result(0, "succeeded")
    assert quiet.header
    quiet = dataclasses.replace(quiet, header=dataclasses.replace(quiet.header, tally=Tally()))
    assert last_lines(options, quiet, "a.host")[-1] == (
        "summary: 1 round on this node; workers ran for 10.0 s, downtime 0.0 s"
    )


@pytest.mark.parametrize("exit_", [RAISED, KILLED, OUT_OF_MEMORY])
@pytest.mark.parametrize("log", ["", "/logs/5/stderr.log"])
def test_a_failure_fits_a_terminals_last_glance(options: Options, exit_: Exit, log: str) -> None:
    lines = last_lines(options, result(1, exit_=dataclasses.replace(exit_, log=log)), "a.host")
    assert len(lines) <= LINES == 15
    assert not any("\n" in line for line in lines)


def test_a_failure_names_host_rank_exit_code_and_log(options: Options) -> None:
    text = "\n".join(last_lines(options, result(1, exit_=RAISED), "a.host"))
    for words in ("b.host", "rank 5", "code 1", "/logs/5/stderr.log", "round 3", "because"):
        assert words in text


def test_a_failure_is_said_once(options: Options) -> None:
    whole = result(1, exit_=RAISED)
    assert whole.header and whole.header.incident
    spent = RestartsSpent(whole.header.incident.reason, 4, 3)
    verdict, *rest = last_lines(options, dataclasses.replace(whole, reason=str(spent)), "a.host")
    assert verdict.endswith(" failed: this is failure 4, and --max-restarts=3 allows 3")
    assert "".join(rest).count("ValueError: no") == 1


def test_a_failure_shows_the_head_and_the_end_of_the_workers_own_traceback(options: Options) -> None:
    text = "\n".join(last_lines(options, result(1, exit_=RAISED), "a.host"))
    assert "Traceback (most recent call last)" in text
    assert "ValueError: no" in text
    assert "in f0\n" in text and "f29" in text and "f2()" not in text


@pytest.mark.parametrize(("typed", "told"), [("--lr 1 --nproc_per_node=2", True), ("--nproc-per", False)])
def test_a_script_that_fails_on_the_launchers_flag_is_told_where_that_belongs(
    options: Options, typed: str, told: bool
) -> None:
    exit_ = dataclasses.replace(RAISED, code=2, traceback="", message=f"t.py: error: unrecognized arguments: {typed}")
    text = "\n".join(last_lines(options, result(1, exit_=exit_), "a.host"))
    assert ("hint: what follows the script is its own: write a flag of elastic-run before the script" in text) is told


def test_a_short_traceback_is_shown_whole(options: Options) -> None:
    short = 'Traceback (most recent call last):\n  File "train.py", line 3, in <module>\n    f()\nValueError: no\n'
    text = "\n".join(last_lines(options, result(1, exit_=dataclasses.replace(RAISED, traceback=short)), "a.host"))
    assert "line 3, in <module>" in text and "..." not in text


def test_a_kill_is_named_by_its_signal_and_explained(options: Options) -> None:
    text = "\n".join(last_lines(options, result(1, exit_=KILLED), "a.host"))
    assert "SIGKILL" in text and "hint:" in text


def test_a_kill_for_lack_of_memory_says_so(options: Options) -> None:
    text = "\n".join(last_lines(options, result(1, exit_=OUT_OF_MEMORY), "a.host"))
    assert "out of memory" in text and "use less memory" in text


def test_a_timeout_says_where_the_nodes_met_and_what_to_check(options: Options) -> None:
    text = "\n".join(last_lines(options, result(3, "timeout", reason="only 1 of 2:4 came"), "a.host"))
    assert "127.0.0.1:2379" in text and "--rdzv-id=job" in text and "--nnodes=2:4" in text and "only 1" in text


def test_a_refused_node_reads_the_sentence_only(options: Options) -> None:
    assert last_lines(options, result(2, "open", reason="another job"), "a.host") == [
        "the job refused this node: another job"
    ]


def test_a_node_that_left_is_not_told_that_the_job_failed(options: Options) -> None:
    lines = last_lines(options, result(143, "open", reason="it received SIGTERM"), "a.host")
    assert "node a left job job" in lines[0]
    assert not any("failed" in line for line in lines[:-1])


def test_a_node_that_never_saw_a_round_still_reads_why_it_ended(options: Options) -> None:
    timeline = Timeline(0.0)
    timeline.down(60.0)
    lines = last_lines(options, Result(4, "the store is gone", None, "a", (), timeline), "a.host")
    assert "the store is gone" in lines[0] and "0 rounds" in lines[-1]


def test_the_json_holds_the_same_for_programs(options: Options, tmp_path: Path) -> None:
    path = tmp_path / "deep" / "summary.json"
    write_json(path, options, result(1, exit_=RAISED))
    summary = json.loads(path.read_text())
    assert summary["job"] == "job" and summary["node"] == "a"
    assert (summary["exit_code"], summary["outcome"], summary["reason"]) == (1, "failed", "because")
    assert summary["restarts"] == {
        "worker_failures": 1,
        "optional_role_failures": 0,
        "lost_nodes": 2,
        "departures": 0,
        "unfit_nodes": 0,
        "arrivals": 0,
        "start_problems": 0,
    }
    assert (summary["seconds_with_workers"], summary["seconds_without_workers"]) == (10.0, 0.0)
    assert summary["goodput"] == 0.75
    assert [(change["round"], change["code"]) for change in summary["rounds"]] == [(4, "AllJoined")]
    assert summary["root_cause"]["node"] == "b" and summary["root_cause"]["exit"]["rank"] == 5
    assert summary["root_cause"]["code"] == "WorkerFailed"
    assert summary["root_cause"]["text"] == "rank 5 on node b died by SIGKILL (9)"


@pytest.mark.parametrize(
    ("code", "state", "outcome"),
    [(0, "succeeded", "succeeded"), (143, "open", "left"), (4, "open", "stopped"), (3, "timeout", "timeout")],
)
def test_the_json_names_the_outcome(
    options: Options, tmp_path: Path, code: int, state: HeaderState, outcome: str
) -> None:
    path = tmp_path / "summary.json"
    write_json(path, options, result(code, state))
    summary = json.loads(path.read_text())
    assert summary["outcome"] == outcome and summary["root_cause"] is None


def test_a_named_pipe_that_nobody_reads_is_an_error_and_no_wait(options: Options, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "summary.json")
    with pytest.raises(OSError, match="No such device"):
        write_json(tmp_path / "summary.json", options, result(0, "succeeded"))


def test_a_standstill_that_came_before_a_failure_is_told_and_is_in_the_summary(
    options: Options, tmp_path: Path
) -> None:
    sleeps = Finding("sleeps", 1, "b", "strong", "train.py:3", (0,), round=3)
    found = dataclasses.replace(result(1, "failed"), findings=(sleeps,))
    words = "diagnosis of round 3: rank 1 on node b sleeps (train.py:3); rank 0 waits; evidence: strong"
    assert last_lines(options, found, "a.host")[1] == words
    named = dataclasses.replace(found, reason=f"the job makes no progress: {sleeps}")
    weak = Finding("standstill", None, "b", "weak", "rank 0 waits", round=3)
    ended = dataclasses.replace(sleeps, done="ended the job (--on-hang=fail)")
    for each in (named, dataclasses.replace(named, findings=(ended, weak))):
        assert not any("diagnosis" in line for line in last_lines(options, each, "a.host")), "its reason names it"
    well, killed = result(0, "succeeded"), dataclasses.replace(sleeps, done="killed rank 1 (--on-hang=restart)")
    assert last_lines(options, dataclasses.replace(well, findings=(killed, weak)), "a.host")[1] == (
        f"{words}; killed rank 1 (--on-hang=restart)"
    )
    assert last_lines(options, well, "a.host") == last_lines(
        options, dataclasses.replace(well, findings=(sleeps, weak)), "a.host"
    ), "nothing was done about it"
    write_json(tmp_path / "summary.json", options, found)
    (told,) = json.loads((tmp_path / "summary.json").read_text())["diagnosis"]
    assert (told["kind"], told["rank"], told["domain"], told["evidence"]) == ("sleeps", 1, "script", "strong")
