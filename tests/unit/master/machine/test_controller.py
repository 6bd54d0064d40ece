"""The controller as a pure machine: transcripts of events and effects (`tests/transcripts/controller`); its history."""

import dataclasses
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import cast, get_args

import pytest

from elastic_run.master.diagnosis.findings import Finding, Kind, Strength
from elastic_run.master.history import Begin, History, replay
from elastic_run.master.machine import effects, events
from elastic_run.master.machine.controller import Controller, Terms
from elastic_run.master.machine.memory import Memory
from elastic_run.master.machine.targets import Targets
from elastic_run.rendezvous.keys import Keys
from elastic_run.rendezvous.member import Exit, Fingerprint, Member, Report, State
from elastic_run.rendezvous.node_reasons import ProcessGone, ReturnWanted
from elastic_run.rendezvous.roles import Role
from elastic_run.rendezvous.round import Policy
from elastic_run.rendezvous.time_split import MICROSECONDS, SplitUntil
from elastic_run.rendezvous.wire.values import Malformed

from ....transcripts import runner
from ....transcripts.runner import Command, transcripts

FINGERPRINT = Fingerprint("train.py", (), "2:3", "1", "1.0")
TERMS = Terms(Policy(min_nodes=2, max_nodes=2), 3, 0, FINGERPRINT)
NOTHING_FOUND = events.Found(None, 0, 0.0)


@transcripts("controller")
def test_transcript(path: Path, request: pytest.FixtureRequest) -> None:
    runner.replay(path, ControllerTranscript().on, request)


class ControllerTranscript:
    """A master that is told what happens, at times that it remembers; it prints what its controller wants.

    job 2:3 [restarts=] [on-hang=]      begins another; roles=worker:1,evaluator:0 has one node each, optional where 0
    job 2:3 a b                         these are registered, nothing was found, round 1 is published, and at 60 s
                                        those in standing-still= tell that a worker stands still
    found, takeover                     nothing was there; another master, with what the one before has published
    look, published                     looks; what it wanted to publish is published
    node a running 1 [exits=] ...       a node's key was written: `exits` are `rank:code:message|...` of that round
    gone, died, answered, refused a     its key was deleted; a proof of its death; an answer of its agent; an eviction
    evicted a 20, watched-to 21         its key is not there from that revision on; all changes before it were told
    store-away 9                        the store did not answer until then
    finding sleeps ..., diagnosed ...   how a finding of that kind looks; these were found
    status                              what the controller says of the job
    """

    def __init__(self) -> None:
        self.now, self.terms, self.findings = 0.0, TERMS, dict[str, Finding]()
        self.wanted: effects.Publish | None = None
        self.known = NOTHING_FOUND
        self.controller = made()

    def on(self, command: Command) -> Iterator[str]:
        """Carries out one command."""
        self.now = command.number("at", 0.0 if command.name == "job" else self.now)
        match command.name:
            case "job":
                self.terms, self.known, still = terms_of(command), NOTHING_FOUND, command.take("standing-still")
                self.controller = made(self.terms)
                if nodes := command.rest():
                    for event in (*map(registered, nodes), NOTHING_FOUND, events.Look()):
                        self.tell(event)
                    self.publish()
                for name in still:
                    self.now = 60.0
                    self.tell(registered(name, Report("running", 1, stalled=1)))
            case "takeover":
                self.controller = made(self.terms)
            case "published":
                yield from self.publish()
            case "all-here":
                yield "yes" if self.controller.all_here() else "no"
            case "finding":
                finding = finding_of(command)
                self.findings[finding.kind] = finding
            case "status":
                status = self.controller.status(self.now)
                spent = status.goodput.split.seconds.get("infrastructure_recovery_from_disruption", 0)
                nodes = ", ".join(f"{each.node} {each.state}" for each in status.nodes)
                optional = f", failures of optional roles: {status.tally.optional}" if status.tally.optional else ""
                again = status.goodput.split.seconds.get("wasted_progress_from_disruption", 0)
                wasted = f", {again:g} s of it again" if again else ""
                yield f"{nodes}; trained {status.goodput.trained:g} s{wasted}, recovered for {spent:g} s{optional}"
                for each in status.diagnosis:
                    yield f"found {each.ago:g} s ago ({each.domain}, a restart {each.outlook}): {each.finding}"
            case _:
                yield from self.tell(self.event(command))

    def publish(self) -> list[str]:
        """What the controller wanted to publish last is published."""
        assert self.wanted is not None, "nothing is to be published"
        header, assigned = self.wanted.header, self.wanted.assignments or self.known.assigned
        self.known = events.Found(header, 10 + header.number, self.now, assigned=assigned)
        return self.tell(events.Published(header, self.known.revision, self.now))

    def tell(self, event: events.Event) -> list[str]:
        """Tells the controller, and gives what it wants, one line each."""
        found = self.controller.on(event, self.now)
        for kept in (each for each in found if isinstance(each, SplitUntil)):
            self.known = dataclasses.replace(self.known, spent=kept, spent_at=self.now)
        self.wanted = next((each for each in found if isinstance(each, effects.Publish)), self.wanted)
        return [words for each in found if (words := effect_words(each))]

    def event(self, command: Command) -> events.Event:
        match command.name, command.words:
            case "node", _:
                return registered_as(command, self.now)
            case "found", _:
                return self.known
            case "look", _:
                return events.Look()
            case "evicted", [name, revision]:
                command.rest()
                return events.Evicted(f"{name}#1", int(revision))
            case "diagnosed", _:
                found = command.change(events.Diagnosed(1, ()))
                findings = (self.findings[kind] for kind in command.rest())
                changes = {"seconds": float(seconds)} if (seconds := command.take("seconds")) else {}
                return dataclasses.replace(
                    found, findings=tuple(dataclasses.replace(each, **changes) for each in findings)
                )
            case name, _:
                return NAMED[name](command.words.pop())


NAMED: Mapping[str, Callable[[str], events.Event]] = {
    "store-away": lambda until: events.StoreAway(float(until)),
    "watched-to": lambda revision: events.WatchedTo(int(revision)),
    "gone": events.Unregistered,
    "died": lambda name: events.Died(name, f"{name}#1", ProcessGone(f"{name}:1"), None),
    "answered": lambda name: events.Answered(f"{name}#1"),
    "refused": lambda name: events.Refused(name, f"{name}#1"),
}


def terms_of(command: Command) -> Terms:
    least, most = map(int, command.words.pop(0).split(":"))
    wanted = [each.split(":") for each in command.take("roles").split(",") if each]
    roles = [Role(name, int(least), 1, on_loss="one", counts=False) for name, least in wanted]
    roles[:1] = [dataclasses.replace(each, on_loss="all", counts=True) for each in roles[:1]]
    terms = dataclasses.replace(TERMS, policy=Policy(least, most, roles=tuple(roles)))
    return command.change(terms, max_restarts="restarts")


def registered_as(command: Command, now: float) -> events.Registered:
    """`node a running 1 exits=0:1:KeyError`: what the node says of its workers."""
    name, unreadable, exits = command.words.pop(0), command.flag("unreadable"), list[Exit]()
    state = next((each for each in get_args(State) if command.flag(each)), "waiting")
    number = int(command.words.pop(0)) if state != "waiting" else 0
    for rank, code, *message in (each.split(":", 2) for each in command.take("exits").split("|") if each):
        exits.append(Exit(number, int(rank), 0, 1, int(code), message="".join(message), seconds=5.0))
    report = command.change(Report(state, number, tuple(exits)))
    event = command.change(registered(name, report, command.change(FINGERPRINT)))
    return dataclasses.replace(event, since=now, member=None if unreadable else event.member)


def finding_of(command: Command) -> Finding:
    kind, node, strength, *rank = command.rest()
    waiting = tuple(int(each) for each in command.take("waiting").split(",") if each)
    printed = tuple(each for each in command.take("printed").split("|") if each)
    suspect = int(rank[0]) if rank else None
    found = Finding(cast(Kind, kind), suspect, node, cast(Strength, strength), "", waiting, last_lines=printed, round=1)
    return command.change(found)


def effect_words(effect: effects.Effect) -> str:
    match effect:
        case effects.Say(line):
            return f"say: {line}"
        case effects.Watch(_, order, incarnation, address, proof):
            return f"watch {incarnation} (order {order}) at {address}{f': {proof}' if proof else ''}"
        case Targets(wanted):
            each = (f"{one.count} nodes{f' as {one.role}' if one.role else ''}: {one.reason}" for one in wanted)
            return f"write that it wants {', '.join(each)}"
        case effects.Examine(round, nodes):
            return f"examine round {round}: {', '.join(f'{each.incarnation} at {each.address}' for each in nodes)}"
        case effects.Condemn(node, condemned):
            return f"kill rank {condemned.rank} of round {condemned.round} on {node.node}: {condemned.why}"
        case effects.Note(finding):
            return f"trace: {finding}{finding.done and '; done: '}{finding.done}"
        case effects.Refuse(_, order, incarnation, eviction, line):
            how = f"(order {order}){' for good' if eviction.final else ''}"
            return f"refuse {incarnation} {how}: {line} [{eviction.reason}]"
        case effects.Wait(until):
            return "wait" if until is None else f"wait until {until:g}"
        case SplitUntil(round, becomes, split, at_risk):
            risk = "" if at_risk is None else f" ({at_risk / MICROSECONDS:g} s of it at risk)"
            productive = f"{split.productive / MICROSECONDS:g} s{risk}"
            return f"keep that round {round} was productive for {productive}, and is: {becomes}"
        case effects.CleanUp(succeeded):
            return f"remove the job's keys{', it has succeeded' if succeeded else ''}"
        case effects.Publish(what, header, assignments, begun):
            nodes = "".join(f" {each.node}" for each in assignments)
            place, ranks = " in place" * header.in_place, f" with {header.world_size} ranks on{nodes}" if nodes else ""
            spent = f"{header.restart_count} of {header.max_restarts} restarts"
            known = header.incident
            incident = f" [{known.cause} on {known.node}: {known.reason}]" if known else ""
            incident = incident.replace(f": {header.reason}]", "]")  # once is enough
            cause = f"{header.state}, {header.cause}, since {begun:g}, {spent}"
            return f"{what} round {header.number}{place}{ranks} ({cause}): {header.reason}{incident}"
        case _:
            return " ".join((type(effect).__name__.lower(), *map(str, dataclasses.astuple(effect))))


def member(name: str, report: Report | None = None, fingerprint: Fingerprint = FINGERPRINT) -> Member:
    return Member(name, f"{name}#1", f"{name}.host", f"{name}:1", 1, (5001,), fingerprint, report=report or Report())


def registered(name: str, report: Report | None = None, fingerprint: Fingerprint = FINGERPRINT) -> events.Registered:
    """The order of arrival is that of the alphabet."""
    return events.Registered(name, member(name, report, fingerprint), ord(name) - ord("a") + 1, 0.0)


def made(terms: Terms = TERMS) -> Controller:
    return Controller(Keys("job"), terms, 0.0, memory=Memory(0.0), run="run")


def test_nothing_is_decided_before_what_an_earlier_master_left_is_known() -> None:
    controller = made()
    controller.on(registered("a"), 0.0)
    with pytest.raises(AssertionError, match="has not been told"):
        controller.on(events.Look(), 0.0)


def test_a_master_with_a_plan_writes_no_target_before_its_plan_has_begun() -> None:
    controller = made(dataclasses.replace(TERMS, policy=Policy(1, 8), plan="goodput"))

    def targets() -> list[tuple[int, str]]:
        found = [each for each in controller.on(events.Look(), 1.0) if isinstance(each, Targets)]
        return [(each.wanted[0].count, str(each.wanted[0].reason)) for each in found]

    controller.on(NOTHING_FOUND, 0.0)
    assert targets() == [], "what an earlier master has written holds: the most nodes would be started else"
    controller.on(events.Planned(1, "1 node until it is measured"), 1.0)
    assert targets() == [(1, "1 node until it is measured")]
    assert targets() == []
    controller.on(events.Planned(2, "2 nodes, to see what they do"), 2.0)
    assert targets() == [(2, "2 nodes, to see what they do")]
    assert controller.status(2.0).targets[0].count == 2


def test_ranks_have_ended_whichever_round_their_worker_was_started_for() -> None:
    roles = (Role("worker", 1, 2, on_loss="one"),)
    controller = made(Terms(Policy(min_nodes=1, max_nodes=2, roles=roles), 3, 0, FINGERPRINT))

    def report(node: str, number: int, *exits: Exit) -> None:
        controller.on(registered(node, Report("running", number, exits, run="run")), 1.0)

    def publish() -> None:
        (opened,) = [each for each in controller.on(events.Look(), 90.0) if isinstance(each, effects.Publish)]
        controller.on(events.Published(opened.header, 3, 90.0), 90.0)

    for event in (registered("a"), registered("b"), NOTHING_FOUND):
        controller.on(event, 0.0)
    publish()
    report("a", 1)
    report("b", 1, Exit(1, 1, 0, 2, 1, message="KeyError"))
    publish()  # b's worker is started again, and a's goes on
    report("a", 2, Exit(1, 0, 0, 1, 0))
    report("b", 2, Exit(1, 1, 0, 2, 0))  # of which there is another by now
    assert (controller.round.number, controller.ended_ranks) == (2, {0})
    controller.on(registered("b", Report("running", 2, ended=(1,), run="run")), 1.0)
    assert controller.ended_ranks == {0, 1}, "also one for which there is no room among the exits"
    controller.on(registered("b", Report("running", 1, ended=(1,), run="run")), 1.0)
    assert controller.ended_ranks == {0}


@pytest.mark.parametrize("roles", [(), (Role("worker", 2, 2, on_loss="one"),)])
@pytest.mark.parametrize("lost", [False, True])
def test_a_job_goes_back_with_a_round_in_which_no_worker_goes_on(roles: tuple[Role, ...], lost: bool) -> None:
    terms = Terms(Policy(1 if lost else 2, 2, roles=() if lost else roles), 3, 0, FINGERPRINT)
    controller, wanted = made(terms), ReturnWanted("rows are lost: the job goes back")

    def look() -> effects.Publish:
        (found,) = [each for each in controller.on(events.Look(), 9.0) if isinstance(each, effects.Publish)]
        controller.on(events.Published(found.header, 10 + found.header.number, 9.0), 9.0)
        return found

    def report(node: str, report: Report) -> None:
        controller.on(registered(node, dataclasses.replace(report, keeps=not roles, holding=int(not roles))), 9.0)

    for event in (registered("a"), registered("b"), NOTHING_FOUND):
        controller.on(event, 0.0)
    assert look().header.rows_from == 0
    for node in "ab":
        report(node, Report("running", 1))
    if lost:
        controller.on(events.Died("b", "b#1", ProcessGone("b:1"), None), 9.0)
    report("a", Report("failed", 1, problem=wanted))
    back = look()
    header = back.header
    assert (header.number, header.rows_from, header.reason, header.restart_count) == (2, 2, wanted, 1)
    assert not header.in_place and {each.since for each in back.assignments} == {0}
    report("a", Report("failed", 2, (Exit(2, 0, 0, 1, 1, message="KeyError"),)))
    again = look().header
    assert (again.number, again.rows_from, again.restart_count) == (3, 2, 2)


def history(tmp_path: Path, terms: Terms = TERMS) -> Path:
    """Of a controller that opens a round, loses a node and waits for it."""
    begin = Begin("job", terms, 0.0, "run", 5.0)
    controller = begin.controller(0.0)
    file = tmp_path / "history"
    record = History(file, pytest.fail)
    record.add(begin, 0.0)

    def tell(event: events.Event, now: float) -> tuple[effects.Effect, ...]:
        found = controller.on(event, now)
        record.add(event, now, found)
        return found

    for event in (registered("a"), registered("b"), NOTHING_FOUND):
        tell(event, 0.0)
    (opened,) = [each for each in tell(events.Look(), 0.0) if isinstance(each, effects.Publish)]
    tell(events.Published(opened.header, 3, 0.1), 0.1)
    tell(events.Died("b", "b#1", ProcessGone("b:1"), None), 2.0)
    tell(events.Look(), 2.0)
    record.close()
    return file


def test_a_history_is_decided_again_in_the_same_way(tmp_path: Path) -> None:
    lines = history(tmp_path).read_bytes().splitlines()
    assert len(lines) > 8
    assert list(replay(lines)) == []


def test_a_replay_tells_where_it_decides_otherwise(tmp_path: Path) -> None:
    lines = history(tmp_path).read_bytes().splitlines()
    other = [line.replace(b'"min_nodes":2', b'"min_nodes":1', 1) for line in lines]
    (difference,) = replay(other)
    assert '"what":"suspend"' in difference.recorded[-1] and '"what":"open"' in difference.now[-1]
    assert b'"kind":"Look"' in lines[difference.line - 1]


def test_a_history_that_is_none_is_refused_in_words(tmp_path: Path) -> None:
    lines = history(tmp_path).read_bytes().splitlines()
    with pytest.raises(Malformed, match=r"Registered.*node"):
        list(replay([lines[0], lines[1].replace(b'"node":"a"', b'"node":1', 1)]))


def test_a_history_that_cannot_be_written_is_told_once(tmp_path: Path) -> None:
    said: list[str] = []
    record = History(tmp_path / "none" / "history", said.append)
    record.add(NOTHING_FOUND, 0.0)
    record.close()
    (line,) = said
    assert "cannot be written (No such file or directory)" in line
