"""What an agent says of its node and does with its workers: transcripts (`tests/transcripts/plan`), and bounds."""

import dataclasses
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast, get_args

import pytest

from elastic_run.elastic_agent import plan
from elastic_run.elastic_agent.plan import Action, View, act, gentle, replaced, report
from elastic_run.rendezvous.fields import MAX_WORDS
from elastic_run.rendezvous.header import Header, HeaderState
from elastic_run.rendezvous.member import MAX_EXITS, Exit, Fingerprint, Report, State
from elastic_run.rendezvous.node_reasons import Unfit
from elastic_run.rendezvous.ranks import Assignment
from elastic_run.rendezvous.reasons import NodeFailed
from elastic_run.rendezvous.round import Cause

from ...transcripts.runner import Command, replay, transcripts


def header(number: int = 1, state: HeaderState = "open", cause: Cause = "start") -> Header:
    fingerprint = Fingerprint("train.py", (), "2:4", "1", "0")
    return Header(number, "R", state, cause, NodeFailed("b", f"({cause})"), fingerprint)


def assignment(number: int = 1) -> Assignment:
    return Assignment(number, "a", "A", 0, 2, 0, 1, 2, 0, 2)


JOINED = View(header=header(), assignment=assignment(), assigned=True, told=Report("waiting", 1))
RUNNING = dataclasses.replace(JOINED, round=1, alive=1, total=1, told=Report("running", 1))
FAILURE = Exit(1, 0, 0, 100, 1)
BASES = {
    "new": View(),
    "joined": JOINED,
    "running": RUNNING,
    "done": dataclasses.replace(
        RUNNING, alive=0, exits=(dataclasses.replace(FAILURE, code=0),), told=Report("succeeded", 1)
    ),
    "failed": dataclasses.replace(RUNNING, alive=0, exits=(FAILURE,), told=Report("failed", 1, (FAILURE,))),
    "elsewhere": View(header=header(4), outside=True, told=Report("waiting", 4, run="R")),
}
OTHER_NAMES = {
    "staying": "keep",
    "waiting": "waiting-workers",
    "round": "belongs-to",
    "problem": "start-failed",
    "header_age": "round-age",
    "notice_age": "age",
}


@transcripts("plan")
def test_transcript(path: Path, request: pytest.FixtureRequest) -> None:
    replay(path, PlanTranscript().on, request)


class PlanTranscript:
    """A node, of which all that it knows is told.

    given new       it has just come; joined: it has a rank in round 1, and no workers yet; running: it has a worker
                    there; done, failed: which has ended; elsewhere: it is in no round, where workers keep their process
    report, act, replaced ...   what it says of itself, does, and whether it was replaced, given that besides
        round=2:lost            is the current round, in which it has a rank; others=: it has none there; waiting=: the
                                job is suspended; failed=, ...: the job has ended
        workers=1/2             so many of its workers live; exits=, late=: how others of this or the last round ended
        notice=TERM age=3       it was told to leave so long ago; again=: twice
        told=leaving            the store holds that about it
        ...                     all else that a `View` holds
    gentle ...      the earliest round from which only joins and departures led to each of these
    """

    def __init__(self) -> None:
        self.view = View()

    def on(self, command: Command) -> Iterator[str]:
        """Carries out one command."""
        base = BASES[command.words.pop(0)] if command.words and command.words[0] in BASES else self.view
        match command.name:
            case "given":
                self.view = view_of(base, command)
            case "report":
                yield report_words(report(view_of(base, command)))
            case "act":
                action, why = act(view_of(base, command))
                yield f"{action_words(action)}: {why}".removesuffix(": ")
            case "replaced":
                yield replaced(view_of(base, command)) or "no"
            case "exit-code":
                number = signal_of(command.take("notice"))
                yield str(plan.exit_code(header(2, cast(HeaderState, command.words.pop(0))), number))
            case "gentle":
                known, earliest, found = None, 0, list[int]()
                for word in command.rest():
                    number, cause, *state = word.split(":")
                    latest = header(int(number), cast(HeaderState, (state or ["open"])[0]), cast(Cause, cause))
                    earliest, known = gentle(known, earliest, latest), latest
                    found.append(earliest)
                yield " ".join(map(str, found))
            case name:
                raise ValueError(name)


def view_of(base: View, command: Command) -> View:
    """`base`, with what a command says besides."""
    changes: dict[str, Any] = {}
    for state in ("round", "others", *get_args(HeaderState)):
        if told := command.take(state):
            number, _, cause = told.partition(":")
            is_open = state in ("round", "others")
            named = header(int(number), cast(HeaderState, "open" if is_open else state), cast(Cause, cause or "start"))
            changes["header"] = dataclasses.replace(named, nodes=command.count("nodes"))
            if is_open or state == "waiting":
                changes["assignment"] = assignment(int(number)) if state == "round" else None
    if workers := command.take("workers"):
        changes["alive"], changes["total"] = map(int, workers.split("/"))
    for option, notice in (("notice", "leave"), ("again", "kill")):
        if told := command.take(option):
            changes |= {"notice": notice, "notice_signal": signal_of(told)}
    changes |= {name: exits_of(told) for name in ("exits", "late") if (told := command.take(name))}
    if told := command.take("told"):
        changes["told"] = Report(cast(State, told), 1 if base.round else 0)
    changes |= {"registered": False} if command.flag("unregistered") else {}
    changes |= {"stale": "R"} if command.flag("earlier-run") else {}
    return command.change(dataclasses.replace(base, **changes), **OTHER_NAMES)


def signal_of(word: str) -> int:
    return int(signal.Signals[f"SIG{word}"])


def exits_of(text: str) -> tuple[Exit, ...]:
    """`0,1,KILL,TERM:stopped`: how the workers of round 1 ended, by rank."""
    found: list[Exit] = []
    for rank, (how, _, stopped) in enumerate(each.partition(":") for each in text.split(",") if each):
        code, by = (int(how), None) if how.isdigit() else (None, signal_of(how))
        found.append(Exit(1, rank, rank, 100 + rank, code, by, stopped=bool(stopped)))
    return tuple(found)


def report_words(told: Report) -> str:
    words = [f"{told.state} in round {told.round}{f' of run {told.run}' if told.run else ''}"]
    for each in told.exits:
        how = f"code {each.code}" if each.signal is None else signal.Signals(each.signal).name
        words.append(f"rank {each.rank} of round {each.round} ended with {how}{' (stopped)' if each.stopped else ''}")
    words += [
        f"{each.name}={getattr(told, each.name)}" for each in dataclasses.fields(told)[5:] if getattr(told, each.name)
    ]
    return ", ".join(words) + (f": {told.problem}" if told.problem else "")


def action_words(action: Action) -> str:
    match action:
        case plan.Wait(seconds):
            return "wait" if seconds is None else f"wait for {seconds:g} s"
        case plan.Leave(code):
            return f"leave with exit code {code}"
        case plan.Stop(first, grace):
            return (
                f"stop the workers with {signal.Signals(first).name}{f', SIGKILL after {grace:g} s' if grace else ''}"
            )
        case plan.Start(found, part) | plan.Reform(found, part) | plan.Adopt(found, part):
            return f"{type(action).__name__.lower()} workers in round {found.number} with the ranks of {part.round}"
        case plan.Ready(found):
            return f"get workers ready in round {found.number}"
        case plan.Invite(round, seconds):
            return f"invite workers to leave for round {round} within {seconds:g} s"
        case plan.Break(round):
            return f"break the workers' process group for round {round}"
        case plan.Register() | plan.Resume():
            return type(action).__name__.lower()


def test_a_notice_always_ends_in_departure() -> None:
    for base in BASES.values():
        told = {"notice": "leave", "notice_signal": 15, "notice_age": 100.0, "alive": 0, "left_out_overdue": True}
        assert act(dataclasses.replace(base, **told))[0] == plan.Leave(128 + 15)  # type: ignore[arg-type]


def test_the_report_of_a_trouble_that_takes_many_words_can_be_read_by_the_master() -> None:
    problem = report(dataclasses.replace(RUNNING, unfit="x" * 100_000)).problem
    assert isinstance(problem, Unfit) and len(problem.why) == MAX_WORDS and problem.why.endswith("x ...")


def test_the_report_holds_no_more_exits_than_it_may_and_the_first_failure() -> None:
    exits = (*(Exit(1, rank, rank, 100 + rank, 0) for rank in range(39)), Exit(1, 39, 39, 139, 1))
    found = report(dataclasses.replace(RUNNING, alive=0, total=40, exits=exits)).exits
    assert len(found) == MAX_EXITS and found[0] == exits[-1]


def test_exit_codes_are_told_apart_and_a_farewell_is_short() -> None:
    codes = {plan.SUCCEEDED, plan.FAILED, plan.REFUSED, plan.TIMEOUT, plan.STORE_LOST, plan.REPEATED}
    assert len(codes) == 6
    assert plan.FAREWELL_PATIENCE < 10
