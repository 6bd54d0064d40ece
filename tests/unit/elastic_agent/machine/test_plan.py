"""What an agent says of its node and does with its workers: transcripts (`tests/transcripts/plan`), and bounds."""

import dataclasses
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast, get_args

import pytest

from elastic_run.elastic_agent.machine import actions, plan
from elastic_run.elastic_agent.machine.actions import Action
from elastic_run.elastic_agent.machine.node_state import (
    KnownRound,
    LocalWorkers,
    MachineState,
    NodeKey,
    NodeState,
    Notice,
    StayingWorkers,
)
from elastic_run.elastic_agent.machine.plan import act, gentle, replaced, report
from elastic_run.rendezvous.header import Header, HeaderState
from elastic_run.rendezvous.member import MAX_EXITS, Exit, Fingerprint, Member, Report, State, read_ranks
from elastic_run.rendezvous.membership import Registration
from elastic_run.rendezvous.node_reasons import ReturnWanted, Unfit
from elastic_run.rendezvous.ranks import Assignment
from elastic_run.rendezvous.reasons import NodeFailed
from elastic_run.rendezvous.round import Cause
from elastic_run.rendezvous.wire.fields import MAX_WORDS

from ....transcripts.runner import Command, replay, transcripts


def header(number: int = 1, state: HeaderState = "open", cause: Cause = "start") -> Header:
    fingerprint = Fingerprint("train.py", (), "2:4", "1", "0")
    return Header(number, "R", state, cause, NodeFailed("b", f"({cause})"), fingerprint)


def assignment(number: int = 1) -> Assignment:
    return Assignment(number, "a", "A", 0, 2, 0, 1, 2, 0, 2)


NOW = 1000.0
MEMBER = Member("a", "A", "host", "host:1", 1, (), Fingerprint("train.py", (), "2:4", "1", "0"))


def node(known: KnownRound, told: Report | None = None, **workers: Any) -> NodeState:  # Any: of `LocalWorkers`
    """One that is registered."""
    key = NodeKey(Registration("key", MEMBER, 1, 1, 1), came=True, told=told or Report())
    return NodeState(notice=Notice(at=NOW), key=key, known=known, workers=LocalWorkers(**workers))


ROUND = KnownRound(header(), seen_at=NOW, assignment=assignment(), assigned=True)
FAILURE = Exit(1, 0, 0, 100, 1)
DONE = dataclasses.replace(FAILURE, code=0)
RUNNING = node(ROUND, Report("running", 1), round=1, alive=1, total=1)
BASES = {
    "new": node(KnownRound()),
    "joined": node(ROUND, Report("waiting", 1)),
    "running": RUNNING,
    "done": node(ROUND, Report("succeeded", 1), round=1, total=1, exits=(DONE,)),
    "failed": node(ROUND, Report("failed", 1, (FAILURE,)), round=1, total=1, exits=(FAILURE,)),
    "elsewhere": node(KnownRound(header(4), seen_at=NOW, others_keep=True), Report("waiting", 4, run="R")),
}
OTHER_NAMES = {
    "staying": "keep",
    "waiting": "waiting-workers",
    "round": "belongs-to",
    "problem": "start-failed",
    "others_keep": "outside",
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
        ...                     all else that a `NodeState` holds
    gentle ...      the earliest round from which only joins and departures led to each of these
    """

    def __init__(self) -> None:
        self.state = BASES["new"]

    def on(self, command: Command) -> Iterator[str]:
        """Carries out one command."""
        base = BASES[command.words.pop(0)] if command.words and command.words[0] in BASES else self.state
        match command.name:
            case "given":
                self.state = state_of(base, command)
            case "report":
                yield report_words(report(state_of(base, command), NOW))
            case "act":
                action, why = act(state_of(base, command), NOW)
                yield f"{action_words(action)}: {why}".removesuffix(": ")
            case "replaced":
                yield replaced(state_of(base, command), NOW) or "no"
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


def state_of(base: NodeState, command: Command) -> NodeState:
    """`base`, with what a command says besides."""
    known, workers, key, group = base.known, base.workers, base.key, base.group
    notice = Notice(base.notice.kind, base.notice.signal, NOW - command.number("age", NOW - base.notice.at))
    for name in ("round", "others", *get_args(HeaderState)):
        if told := command.take(name):
            number, _, cause = told.partition(":")
            is_open = name in ("round", "others")
            named = header(int(number), cast(HeaderState, "open" if is_open else name), cast(Cause, cause or "start"))
            known = dataclasses.replace(known, header=dataclasses.replace(named, nodes=command.count("nodes")))
            if is_open or name == "waiting":
                known = dataclasses.replace(known, assignment=assignment(int(number)) if name == "round" else None)
    known = dataclasses.replace(known, seen_at=NOW - command.number("round-age", NOW - known.seen_at))
    if told := command.take("workers"):
        alive, total = map(int, told.split("/"))
        workers = dataclasses.replace(workers, alive=alive, total=total)
    for option, kind in (("notice", "leave"), ("again", "kill")):
        if told := command.take(option):
            notice = dataclasses.replace(notice, kind=kind, signal=signal_of(told))
    exits = {name: exits_of(told) for name in ("exits", "late") if (told := command.take(name))}
    workers = dataclasses.replace(workers, **exits)
    if told := command.take("told"):
        key = dataclasses.replace(key, told=Report(cast(State, told), 1 if workers.round else 0))
    if told := command.take("stranded"):
        group = dataclasses.replace(group, broke=told, broke_at=NOW - plan.STRANDED_SECONDS)
    machine = base.machine
    if command.flag("left-out-overdue"):
        machine = dataclasses.replace(machine, cleared_at=NOW - 2 * plan.FAREWELL_PATIENCE)
    if command.flag("unregistered"):
        key = dataclasses.replace(key, registration=None)
    if command.flag("earlier-run"):
        known = dataclasses.replace(known, stale="R")
    return dataclasses.replace(
        base,
        settings=command.change(base.settings),
        notice=notice,
        key=command.change(key),
        known=command.change(known, **OTHER_NAMES),
        workers=command.change(workers, **OTHER_NAMES),
        group=command.change(group, **OTHER_NAMES),
        machine=command.change(machine),
    )


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
        case actions.Wait(seconds):
            return "wait" if seconds is None else f"wait for {seconds:g} s"
        case actions.Leave(code):
            return f"leave with exit code {code}"
        case actions.Stop(first, grace):
            return (
                f"stop the workers with {signal.Signals(first).name}{f', SIGKILL after {grace:g} s' if grace else ''}"
            )
        case actions.Start(found, part) | actions.Reform(found, part) | actions.Adopt(found, part):
            return f"{type(action).__name__.lower()} workers in round {found.number} with the ranks of {part.round}"
        case actions.Ready(found):
            return f"get workers ready in round {found.number}"
        case actions.Invite(round, seconds):
            return f"invite workers to leave for round {round} within {seconds:g} s"
        case actions.Break(round):
            return f"break the workers' process group for round {round}"
        case actions.Register() | actions.Resume():
            return type(action).__name__.lower()


def test_a_notice_always_ends_in_departure() -> None:
    for base in BASES.values():
        told = dataclasses.replace(
            base,
            notice=Notice("leave", 15, NOW - 100.0),
            workers=dataclasses.replace(base.workers, alive=0),
            machine=MachineState(cleared_at=NOW - 100.0),
        )
        assert act(told, NOW)[0] == actions.Leave(128 + 15)


def test_the_report_of_a_trouble_that_takes_many_words_can_be_read_by_the_master() -> None:
    problem = report(dataclasses.replace(RUNNING, machine=MachineState(unfit="x" * 100_000)), NOW).problem
    assert isinstance(problem, Unfit) and len(problem.why) == MAX_WORDS and problem.why.endswith("x ...")


def test_a_job_that_is_to_go_back_is_told_so_and_then_no_worker_goes_on() -> None:
    wants = MachineState(return_wanted="rows are lost")
    told = report(dataclasses.replace(RUNNING, machine=wants), NOW)
    assert (told.state, told.round, told.problem) == ("failed", 1, ReturnWanted("rows are lost"))
    for rows_from, staying, since in ((2, 1, 0), (2, 0, 1), (1, 1, 1)):
        round = dataclasses.replace(header(2), rows_from=rows_from)
        known = KnownRound(round, 2, NOW, assignment=dataclasses.replace(assignment(2), since=since), assigned=True)
        action, _ = act(dataclasses.replace(RUNNING, known=known, group=StayingWorkers(staying=staying)), NOW)
        assert isinstance(action, actions.Stop) == (rows_from == 2)


def test_the_report_holds_no_more_exits_than_it_may_and_the_first_failure() -> None:
    exits = (*(Exit(1, rank, rank, 100 + rank, 0) for rank in range(39)), Exit(1, 39, 39, 139, 1))
    found = report(node(ROUND, round=1, total=40, exits=exits), NOW)
    assert len(found.exits) == MAX_EXITS and found.exits[0] == exits[-1]
    told = {each.local_rank for each in found.exits if each.ok}
    assert sorted((*told, *read_ranks(found.ended))) == list(range(39)), "others wait for what those lease"


def test_exit_codes_are_told_apart_and_a_farewell_is_short() -> None:
    codes = {plan.SUCCEEDED, plan.FAILED, plan.REFUSED, plan.TIMEOUT, plan.STORE_LOST, plan.REPEATED}
    assert len(codes) == 6
    assert plan.FAREWELL_PATIENCE < 10


def test_workers_without_a_rank_that_end_by_themselves_make_a_pause_once() -> None:
    early = Exit(0, 0, 0, 100, 1)
    assert plan.ended_early(LocalWorkers(), [FAILURE, early])
    assert not plan.ended_early(LocalWorkers(unready=True), [early])
    assert not plan.ended_early(LocalWorkers(), [FAILURE, dataclasses.replace(early, stopped=True)])
