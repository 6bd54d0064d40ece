"""The benchmarks' arithmetic: what a median, a ratio and a full step are, and what is shown of them."""

import importlib
import math
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks import (
    answers,
    arena,
    journal,
    launchers,
    memory,
    node_kill,
    nodes,
    pictures,
    recovery,
    report,
    summary,
    table,
    third_party,
)
from benchmarks.__main__ import ROUNDS

from .pages import page


def series(*seconds: float | None, name: str = "peer", bound: float = 60.0, rounds: tuple[int, ...] = ()) -> Any:
    return table.Series(name, seconds, rounds or tuple(range(len(seconds))), bound)


# Medians and spreads.


def test_few_runs_are_spread_from_the_least_to_the_greatest() -> None:
    found = table.figure([3.0, 1.0, 2.0])
    assert (found.median, found.low, found.high, found.percentiles) == (2.0, 1.0, 3.0, False)


def test_many_runs_are_spread_between_the_10th_and_the_90th_percentile() -> None:
    found = table.figure([float(value) for value in range(11)])
    assert (found.median, found.low, found.high, found.percentiles) == (5.0, 1.0, 9.0, True)


def test_a_median_of_an_even_number_is_between_the_middle_two() -> None:
    assert table.quantile([1.0, 2.0, 4.0, 8.0], 0.5) == 3.0


@given(st.lists(st.floats(0, 1e6), min_size=1), st.floats(0, 1))
def test_a_quantile_lies_between_the_least_and_the_greatest(values: list[float], share: float) -> None:
    assert min(values) <= table.quantile(values, share) <= max(values)


@pytest.mark.parametrize(
    ("value", "text"), [(0.00134, "0.0013"), (0.0345, "0.035"), (0.5, "0.500"), (3.456, "3.46"), (34.56, "34.6")]
)
def test_a_time_keeps_the_figures_that_matter(value: float, text: str) -> None:
    assert table.seconds(value) == text


def test_no_runs_have_no_quantile() -> None:
    with pytest.raises(ValueError, match="no runs"):
        table.quantile([], 0.5)


# Runs that did not get there.


def test_a_run_that_did_not_get_there_counts_as_longer_than_any_other() -> None:
    found = table.times(series(4.0, None, 5.0))
    assert (found.median, found.high) == (5.0, math.inf)


def test_where_half_of_the_runs_did_not_get_there_the_median_is_infinite() -> None:
    assert math.isinf(table.times(series(4.0, None)).median)


def test_it_is_shown_how_many_got_there() -> None:
    (row,) = table.rows("next full step", series(1.0, 1.0, 1.0), [series(4.0, None, None)])
    assert row[-1] == "1 of 3"
    assert ">60" in row[-2]


# Ratios.


def test_a_ratio_is_that_of_the_medians_and_spreads_over_the_rounds() -> None:
    found = table.ratio(series(1.0, 2.0, 4.0), series(4.0, 6.0, 20.0))
    assert (found.of_medians, found.low, found.high, found.pairs) == (3.0, 3.0, 5.0, 3)
    assert found.limits == (False, False, False)


def test_rounds_in_which_the_peer_did_not_run_count_for_nothing() -> None:
    found = table.ratio(series(1.0, 100.0, 4.0), series(4.0, 4.0, rounds=(0, 2)))
    assert (found.of_medians, found.low, found.high, found.pairs) == (1.6, 1.0, 4.0, 2)


def test_the_ratio_to_a_peer_that_never_got_there_is_a_lower_limit() -> None:
    found = table.ratio(series(2.0, 2.0), series(None, None))
    assert (found.of_medians, found.limits) == (30.0, (True, True, True))


def test_the_ratio_to_a_peer_that_got_there_most_times_has_no_upper_end() -> None:
    found = table.ratio(series(2.0, 2.0, 2.0), series(4.0, 4.0, None))
    assert (found.of_medians, found.limits) == (2.0, (False, False, True))
    (row,) = table.rows("next full step", series(2.0, 2.0, 2.0), [series(4.0, 4.0, None)])
    assert row[3] == "2.0x - >30x, 3 pairs"


def test_there_is_no_ratio_where_we_did_not_get_there() -> None:
    assert table.ratio(series(None, None, 1.0), series(4.0, 4.0, 4.0)) is None


def test_a_peer_without_runs_has_no_row() -> None:
    assert table.rows("next full step", series(1.0), [series()]) == []


# Phases.


def test_the_runs_until_a_phase_take_the_sum_up_to_it() -> None:
    whole = table.Series("peer", (6.0,), (0,), 60.0, phases=((1.0, 2.0, 3.0),))
    assert table.until_phase(whole, 1).seconds == (3.0,)


def test_where_a_run_did_not_tell_its_phases_none_is_made_up() -> None:
    whole = table.Series("peer", (6.0, None), (0, 1), 60.0, phases=((1.0, 2.0, 3.0), None))
    assert table.until_phase(whole, 1) is None


def test_a_phase_is_told_by_its_median_in_a_column_for_each_launcher() -> None:
    ours = table.Series("ours", (3.0,), (0,), 60.0, phases=((1.0, 2.0),))
    peer = table.Series("peer", (7.0, 9.0, None), (0, 1, 2), 60.0, phases=((3.0, 4.0), (5.0, 4.0), None))
    headings, body = table.phase_rows(("launch", "import"), [ours, peer, series(1.0, name="silent")])
    assert headings == ("median seconds of", "ours", "peer")
    assert body == [("launch", "1.00", "4.00"), ("import", "2.00", "4.00")]


def test_a_phase_that_has_a_row_of_its_own_is_timed_by_itself() -> None:
    whole = table.Series("ours", (6.0, None), (0, 1), 60.0, phases=((1.0, math.inf), None))
    assert table.of_phase(whole, 0).seconds == (1.0, None)
    assert table.of_phase(whole, 1).seconds == (None, None)


def test_a_phase_that_a_launcher_does_not_have_gives_it_no_runs() -> None:
    peer = table.Series("peer", (6.0,), (0,), 60.0, phases=((math.nan,),))
    assert table.of_phase(peer, 0).seconds == ()
    _, body = table.phase_rows(("loss",), [peer])
    assert body == [("loss", "-")]


def test_what_no_peer_ran_has_a_row_without_one() -> None:
    (row,) = table.alone("all hold it", series(1.0, 2.0))
    assert row == ("all hold it", "-", "-", "-", "1.50 (1.00 - 2.00, n=2)", "-", "-")
    assert table.alone("all hold it", series()) == []


# Drawing.


def test_the_headings_say_what_is_measured() -> None:
    assert table.headings("MiB")[4:6] == ("elastic-run, MiB", "peer, MiB")


def test_columns_of_a_terminal_are_as_wide_as_their_widest_cell() -> None:
    assert table.plain(("a", "b"), [("long", "1"), ("x", "2")]) == "a     b\nlong  1\nx     2"


def test_a_documents_table_has_a_rule_under_its_headings() -> None:
    assert table.markdown(("a", "b"), [("1", "2")]) == "| a | b |\n| --- | --- |\n| 1 | 2 |"


def test_only_what_stands_between_a_sections_markers_is_replaced() -> None:
    old = "before\n<!-- begin: x -->\nold\n<!-- end: x -->\nafter\n"
    new = table.replaced(old, {"x": "new"})
    assert new == "before\n<!-- begin: x -->\n\nnew\n\n<!-- end: x -->\nafter\n"
    assert table.replaced(new, {"x": "new"}) == new


def test_a_document_without_the_sections_markers_is_refused() -> None:
    with pytest.raises(ValueError, match="no section y"):
        table.replaced("<!-- begin: x --><!-- end: x -->", {"y": "new"})


def test_the_document_of_the_figures_says_of_each_case_what_its_benchmark_says() -> None:
    cases = [case for name in ROUNDS for case in importlib.import_module(f"benchmarks.{name}").CASES]
    document = page("benchmarks")
    assert len(cases) > 20
    assert table.replaced(document, {case.name: "new" for case in cases}) != document
    words = " ".join(document.split())
    assert [case.name for case in cases if f"--> {report.caption(case)} | until |" not in words] == []
    assert [case.name for case in cases if case.common not in words] == []


def test_a_machine_is_listed_once_and_called_by_its_number() -> None:
    empty = f"{table.BEGIN.format(table.MACHINES)}{table.END.format(table.MACHINES)}"
    first, document = table.machine(empty, "cores 2. etcd 3.4")
    second, document = table.machine(document, "cores 4")
    assert (first, second) == (1, 2)
    assert table.machine(document, "cores 2. etcd 3.4") == (1, document)
    assert "\n1. cores 2. etcd 3.4\n2. cores 4\n" in document


# The journal.


def steps(*lines: str) -> Any:
    found = journal.Journal(Path("unused"))
    found.add(lines)
    return found


def test_a_step_is_full_when_all_ranks_have_finished_it_at_the_instant_of_the_last() -> None:
    found = steps("step 100 0 2 1 110", "step 100 1 2 1 115", "step 100 0 2 2 130")
    assert [(step.number, step.at) for step in journal.full_steps(found.steps)] == [(1, 115)]


def test_steps_of_different_generations_do_not_make_a_full_one() -> None:
    found = steps("step 100 0 2 1 110", "step 200 1 2 1 210")
    assert journal.full_steps(found.steps) == []


def test_only_generations_named_after_the_fault_have_recovered() -> None:
    found = steps("step 100 0 1 7 160", "step 200 0 1 7 210")
    assert [step.at for step in journal.full_steps(found.steps, after=150)] == [210]


def test_what_stands_still_is_the_time_between_generations_after_the_event() -> None:
    second = 1_000_000_000
    found = steps(
        *(f"step 1 0 1 {number} {number * second}" for number in (2, 3, 4)),
        *(f"step {5 * second} 0 1 {number} {number * second}" for number in (7, 8)),
        f"step {9 * second} 0 1 10 {10 * second}",
    )
    full = journal.full_steps(found.steps)
    assert journal.standstill(full, 4 * second, full[-1]) == 3.0 + 2.0
    assert journal.standstill(full, 7 * second, full[-1]) == 2.0
    assert journal.standstill(full, 4 * second, full[3]) == 3.0


def test_the_usual_time_of_a_step_knows_of_no_standstill() -> None:
    found = steps(*(f"step 1 0 1 {number} {number * 20_000_000}" for number in (1, 2, 3)), "step 900 0 1 3 990000000")
    assert journal.step_seconds(journal.full_steps(found.steps)) == 0.02


def test_a_rank_tells_that_it_raises() -> None:
    assert steps("raised 1 77").raised == {1: 77}


def test_phases_end_with_the_last_rank_and_add_up_to_the_whole() -> None:
    second = 1_000_000_000
    found = steps(
        f"born 9 0 2 77 {2 * second} {3 * second} {6 * second} {7 * second} {7 * second}",
        f"born 9 1 2 78 {1 * second} {5 * second} {6 * second} {6 * second} {9 * second}",
        f"step 9 0 2 1 {8 * second}",
        f"step 9 1 2 1 {10 * second}",
    )
    (first,) = journal.full_steps(found.steps)
    assert journal.phases(found.born, 0, first) == (2.0, 3.0, 1.0, 1.0, 2.0, 1.0)
    assert journal.pids(found.born, 9) == {0: 77, 1: 78}


def test_phases_are_not_told_while_a_rank_is_silent() -> None:
    found = steps("born 9 0 2 77 1 2 3 4 4", "step 9 0 2 1 5", "step 9 1 2 1 6")
    (first,) = journal.full_steps(found.steps)
    assert journal.phases(found.born, 0, first) is None


def test_the_first_line_counts_once_every_worker_has_told_it() -> None:
    found = steps("line 0 2 30")
    assert found.first_lines(2) is None
    found.add(["line 1 2 20"])
    assert found.first_lines(2) == 30


def test_half_a_line_waits_for_its_rest(tmp_path: Path) -> None:
    file = tmp_path / "journal"
    found = journal.Journal(file)
    file.write_text("line 0 2 30\nline 1")
    found.read()
    assert found.lines == {0: 30}
    file.write_text("line 0 2 30\nline 1 2 40\n")
    found.read()
    assert found.lines == {0: 30, 1: 40}


def test_a_line_of_something_else_is_refused() -> None:
    with pytest.raises(ValueError, match="not a line"):
        steps("line 0")


# What a launcher is started with.


def test_a_checkouts_bytecode_is_kept_whatever_the_user_wishes_as_that_of_an_installed_package_is() -> None:
    given = {"PYTHONDONTWRITEBYTECODE": "1", "HOME": "/home/me", "PET_NNODES": "7"}
    found = launchers.environment(launchers.TORCHRUN, given)
    assert found["HOME"] == "/home/me"
    assert found[launchers.NOSHARE] == "1"
    assert not {"PYTHONDONTWRITEBYTECODE", "PET_NNODES"} & set(found)


def test_each_run_has_a_new_and_empty_home_and_another_job_id(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    seen: set[str] = set()
    for _ in range(2):
        with arena.Arena("worker_kill-0-1") as run:
            for launcher in (launchers.OURS, launchers.TORCHRUN, launchers.BARE):
                found = run.environment(launcher)
                assert found["PYTHONUSERBASE"]
                assert list(Path(found["HOME"]).iterdir()) == []
                assert Path(found["XDG_CACHE_HOME"]).parent == Path(found["HOME"])
            seen |= {run.job_id, run.journal.path.name, found["HOME"]}
    assert len(seen) == 6


@pytest.mark.parametrize("module", ["nodes", "answers"])
def test_the_arguments_of_a_script_are_other_ones_in_each_run(module: str) -> None:
    made = {"nodes": nodes.script, "answers": lambda run: answers.plain_work(run, 1, 1, 0.0)}[module]
    with arena.Arena("one") as one, arena.Arena("one") as other:
        assert made(one) != made(other)


def test_a_script_without_an_argument_of_this_run_alone_is_not_launched() -> None:
    with arena.Arena("one") as run, pytest.raises(arena.NotNew, match=r"script\.py 60"):
        run.launch(launchers.OURS, launchers.Job(run.job_id, "1", 2, None, ("script.py", "60")))


# Who is who.


def test_the_node_that_leads_is_the_one_that_says_so() -> None:
    others = "[elastic-run] waiting for the first round"
    assert node_kill.leader([others, f"{others}\n[elastic-run] the job's master now runs here", others]) == 1


def test_memory_is_counted_by_whose_it_is() -> None:
    found = [
        (1, ["python", "-m", "elastic_run", "/here/plain_work.py", "0"], 20 << 20),
        (2, ["python", "-I", "-S", "/there/elastic_agent/guardian.py", "tag"], 5 << 20),
        (3, ["python", "-I", "/there/rendezvous/store/embedded/supervisor.py", "--home", "/x"], 6 << 20),
        (4, ["/usr/bin/etcd", "--name", "one"], 7 << 20),
        (5, ["python", "-u", "/here/plain_work.py", "0"], 8 << 20),
        (6, ["python", "-u", "/here/plain_work.py", "0"], 9 << 20),
    ]
    assert memory.sums(1, {6}, found) == (20, 5, 8, 6, 7)


# Pictures.


def test_a_trace_is_read_as_far_as_it_is_whole() -> None:
    text = """[
{"ph":"X","ts":5000.5,"dur":1000,"pid":1,"tid":2,"name":"stop"},
{"ph":"M","ts":0,"pid":1,"tid":2,"name":"thread_name","args":{"name":"agent"}},
{"ph":"i","s":"t","ts":4000,"pid":1,"tid":2,"name":"detect"},
{"ph":"X","ts":60"""
    assert recovery.read(text) == [
        recovery.Event("agent", "stop", 5_000_500, 6_000_500),
        recovery.Event("agent", "detect", 4_000_000, 4_000_000),
    ]


def test_a_recovery_has_a_row_for_the_agent_and_one_for_each_rank() -> None:
    ms = 1_000_000
    events = [
        recovery.Event("agent", "prepare", 1 * ms, 50 * ms),
        recovery.Event("agent", "detect", 103 * ms, 103 * ms),
        recovery.Event("agent", "stop", 110 * ms, 115 * ms),
        recovery.Event("agent", "start", 115 * ms, 120 * ms),
        recovery.Event("rank 0", "round 1", 2 * ms, 103 * ms),
    ]
    found = steps(
        f"born {130 * ms} 0 1 77 {125 * ms} {126 * ms} {127 * ms} {128 * ms} {129 * ms}",
        f"step {130 * ms} 0 1 11 {140 * ms}",
    )
    (first,) = journal.full_steps(found.steps)
    agent, rank = recovery.rows(events, found.born, 100 * ms, first)
    assert [(span.name, span.begun, span.ended) for span in agent.spans] == [
        ("detect", 0.0, 0.003),
        ("stop", 0.01, 0.015),
        ("start", 0.015, 0.02),
    ]
    assert rank.name == "rank 0"
    assert [span.name for span in rank.spans] == list(journal.PHASES)
    assert (rank.spans[0].begun, rank.spans[-1].ended) == (0.015, 0.04)
    assert "detect: 3.0 ms from 0.0 ms on" in pictures.timeline("One recovery", [agent, rank])


# Scripts of others.


def test_each_of_our_scripts_in_the_way_of_others_is_there_and_has_an_argument_of_its_run() -> None:
    for script in third_party.OUR_SCRIPTS:
        words = script.words[1:] if script.words[0] == "-m" else script.words
        file = third_party.OWN / words[0]
        compile((file / "__main__.py" if file.is_dir() else file).read_text(encoding="utf-8"), str(file), "exec")
        assert "{folder}" in words[1]


def test_each_script_of_others_names_a_known_repository() -> None:
    assert {script.checkout for script in third_party.SCRIPTS_OF_OTHERS} == set(third_party.CHECKOUTS)
    assert len({script.name for script in third_party.ALL}) == len(third_party.ALL) > 12


def test_a_script_that_cannot_take_part_is_told_of(tmp_path: Path) -> None:
    script = third_party.Script("one", ("a_package_that_nobody_has",), ("one.py",))
    assert third_party.missing(script, None) == "not installed: a_package_that_nobody_has"
    script = third_party.Script("one", (), ("train.py",), checkout="nanoGPT")
    assert third_party.missing(script, None) == "no --checkouts"
    assert third_party.missing(script, tmp_path).endswith("nanoGPT (karpathy/nanoGPT)")
    (tmp_path / "nanoGPT").mkdir()
    assert third_party.missing(script, tmp_path) == ""


def test_a_script_is_warm_where_more_than_half_of_its_modules_are_imported_ahead() -> None:
    script = third_party.Script("one", ("torch",), ("one.py",))
    warm, cold = (third_party.Found(ahead, 100, ("it | says",), "to its end") for ahead in (51, 50))
    made = third_party.table([(script, warm), (script, cold), (script, "not installed: torch")])
    assert "| one | torch | 51 of 100 modules | yes | it \\| says | to its end |" in made
    assert "| one | torch | 50 of 100 modules | no |" in made
    assert "left out: not installed: torch" in made
    assert made.endswith("1 of 2 scripts.")


# The reader's page.


def test_the_readers_page_has_the_figures_of_the_page_of_all_tables() -> None:
    copied = summary.rewritten(page("performance"), page("benchmarks"))
    assert copied == page("performance"), "run: python -m benchmarks.summary"


def test_a_row_that_the_tables_lack_is_refused() -> None:
    with pytest.raises(
        ValueError, match="no row 'next full step' against 'torchrun, noshare' in the section worker_kill"
    ):
        summary.rewritten(page("performance"), "<!-- begin: worker_kill --><!-- end: worker_kill -->")
