"""Deliberate defects of the product, each with a schedule that finds it and the rule that it breaks.

    python -m tests.simulation.mutants                       all of them, each with its schedule
    python -m tests.simulation.mutants --rows                as the rows of docs/simulator.md
    python -m tests.simulation.mutants NAME                  one, with how it breaks its rule
    python -m tests.simulation.mutants NAME --search 0:4000  the first seed that finds it, and what is left of it
                                                             when all is taken away that need not be there;
                                                             masters:0:400 takes another kind (`kinds.py`)

A defect is a change of what passes a public interface (`seams.py`), or else a piece of the product that is found by its
structure and replaced by another (`patterns.py`). Neither depends on a private name. To add one: its name, what it
breaks, and how; `--search` prints the rest.
"""

import argparse
import asyncio
import importlib
import json
import math
import sys
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any

from elastic_run.elastic_agent.machine.actions import Invite, Reform, Start, Stop
from elastic_run.elastic_agent.machine.node_state import NodeKey
from elastic_run.elastic_agent.machine.plan import FAILED, TIMEOUT
from elastic_run.master.machine import effects, events, incident
from elastic_run.master.machine.targets import Target, Targets
from elastic_run.rendezvous.ranks import PORT_SETS
from elastic_run.rendezvous.reasons import MayHave, Settling
from elastic_run.rendezvous.round import Keep
from elastic_run.rendezvous.store.contract import Delete, Listing, Put

from .patterns import Edit
from .planted import Catch, Outdated, catch_defect
from .seams import (
    DATA,
    Change,
    Seam,
    alter_answer,
    alter_arguments,
    alter_each,
    alter_effect,
    alter_event,
    folders_of,
    lose_call,
    lose_compare,
    lose_operation,
    replace_fields,
)


@dataclass(frozen=True, slots=True)
class Changes:
    """Several that are one defect: the product makes up for each of them alone."""

    parts: tuple[Edit | Seam, ...]

    def plant(self) -> None:
        """As of each. Raises Outdated."""
        for each in self.parts:
            each.plant()


@dataclass(frozen=True, slots=True)
class Mutant:
    """One defect.

    Attributes:
        title: what it is called, and what the product does wrong with it.
        defect: how it is put into the product.
        rule: which rule of `invariants.py` it breaks.
        schedule: one with which it does; its lines are separated by " / ".
    """

    title: str
    defect: Edit | Seam | Changes
    rule: str
    schedule: str

    @property
    def name(self) -> str:
        """What it is called."""
        return self.title.partition(": ")[0]

    @property
    def parts(self) -> tuple[Edit | Seam, ...]:
        """The changes that it is."""
        return self.defect.parts if isinstance(self.defect, Changes) else (self.defect,)

    @property
    def text(self) -> str:
        """The schedule, as it is written in a file."""
        return self.schedule.replace(" / ", "\n") + "\n"


DECIDE = "rendezvous.round.decide(found, current, policy)"
SURVEY = "rendezvous.round.survey(members, current, policy)"
USABLE = "rendezvous.round.Policy.usable(self)"
FATAL = "master.machine.incident.fatal(tally, incident, max_restarts, same_failure_limit)"
ACT = "elastic_agent.machine.plan.act(state, now)"
TARGETS = "master.machine.targets.targets(current, policy)"


async def publish_header_first(real: Any, publisher: Any, header: Any, *rest: Any, **how: Any) -> Any:
    """Before the assignments, and again after them."""
    await publisher.put_header(header)
    return await real(publisher, header, *rest, **how)


def alter_exits(**fields: Any) -> Change:
    """Changes how workers have ended, as the master hears of it."""
    return replace_fields(member=replace_fields(report=replace_fields(exits=alter_each(replace_fields(**fields)))))


def succeed_again(real: Any, members: Any, current: Any, policy: Any) -> Any:
    """Who has succeeded in any round has in this one."""
    again = replace_fields(member=replace_fields(report=lambda told: replace(told, round=current.number)))
    return real([again(seen) if seen.member.report.state == "succeeded" else seen for seen in members], current, policy)


def start_beside(real: Any, state: Any, now: float) -> Any:
    """Where workers are stopped for a joining node, others are started instead."""
    action, why = real(state, now)
    joins = isinstance(action, Stop) and state.known.assignment and state.header.cause == "joined"
    return (Start(state.header, state.known.assignment) if joins else action), why


def reform_at_once(real: Any, state: Any, now: float) -> Any:
    """Where workers are asked to leave their process group, it is broken instead."""
    action, why = real(state, now)
    asked = isinstance(action, Invite) and state.notice.kind == "none"
    return (Reform(state.header, state.known.assignment) if asked else action), why


def leave_uncharged(wanted: effects.Publish, controller: Any) -> effects.Publish:
    """A header that suspends the job has the tally of the one before it."""
    if wanted.what != "suspend":
        return wanted
    tally = controller.header.tally
    count = incident.count_restarts(tally, wanted.header.incident, controller.header)
    return replace(wanted, header=replace(wanted.header, tally=tally, restart_count=count))


def call_store_away(real: Any, controller: Any, told: Any, now: float) -> Any:
    """A new master takes the store for one that was away."""
    if isinstance(told, events.Found):
        real(controller, events.StoreAway(now), now)
    return real(controller, told, now)


def keep_first(wanted: Targets, controller: Any) -> Targets | None:
    """The first targets, and no others."""
    return wanted if vars(controller).setdefault("first targets", wanted) is wanted else None


def keep_earlier(real: Any, controller: Any, told: Any, now: float) -> Any:
    """Where an earlier master has written what the job wants, another writes nothing."""
    if isinstance(told, events.Found) and told.header:
        vars(controller)["took over"] = True
    silent = vars(controller).get("took over")
    return tuple(one for one in real(controller, told, now) if not (silent and isinstance(one, Targets)))


async def read_once(real: Any, waits: Any, what: str, store: Any, key: str, hear: Any) -> None:
    """What the job wants is read once, and not watched."""
    if not key.endswith("/targets"):
        await real(waits, what, store, key, hear)
        return

    async def enough(found: Any) -> bool:
        return await hear(found) or found is not None

    await real(waits, what, store, key, enough)
    await asyncio.get_running_loop().create_future()


def start_most(real: Any, seen: Any, spans: Any, wish: Any) -> Any:
    """Where nobody has written what the job wants, it wants all that it may have."""
    most = Targets(tuple(Target(role, most, MayHave(role, least, most)) for role, (least, most) in spans.items()))
    return real(seen or most, spans, wish)


def lose_early(told: Any, controller: Any, _: float) -> Any:
    """What a node says of a round that is still being published is lost."""
    number = controller.header.number if controller.header else 0
    return None if told.member and told.member.report.round > number else told


async def list_no_data(real: Any, store: Any, prefix: str, **how: Any) -> Any:
    """Where the ledgers are, there is nothing."""
    listing = await real(store, prefix, **how)
    return Listing(listing.revision, ()) if prefix.endswith(("/ledgers/", "/queues/")) else listing


MUTANTS: tuple[Mutant, ...] = (
    Mutant(
        "unfenced-writes: the master's writes no longer compare the leader key",
        lose_compare("leader", lambda _, operations: not folders_of(operations) & {"leader", *DATA}),
        "a deposed master changes nothing",
        "seed 2 / job nodes=1 min=1 / running.1+0 freeze n1 13.075",
    ),
    Mutant(
        "tombstone: a success leaves no tombstone",
        lose_operation(Put, "outcome"),
        "a success leaves a tombstone",
        "seed 0 / job",
    ),
    Mutant(
        "clean-up-assignments: the end leaves the assignments in the store",
        lose_operation(Delete, "assignments", lambda operations: "leader" in folders_of(operations)),
        "no key is left",
        "seed 0 / job",
    ),
    Mutant(
        "header-first: the header is written before the assignments that it names",
        Seam("master.publish.Publisher.open", publish_header_first),
        "a header names what is there",
        "seed 0 / job",
    ),
    Mutant(
        "evict-by-key: an eviction compares no create revision",
        lose_compare("nodes", lambda _, operations: folders_of(operations) == {"nodes", "evictions"}),
        "only its own node or the master removes a member",
        "seed 5 / job min=1 work=6 / running.1+1 kill n2 / running.1+1.319 start n2 / "
        "running.1+0.9 etcd_forget_answers 50 3",
    ),
    Mutant(
        "abandoned-none: assignments that no header names stay in the store",
        lose_operation(Delete, "assignments", lambda operations: len(operations) == 1),
        "assignments that no header names do not stay",
        "seed 204 / job nodes=4 / assigned.1+0 kill n4",
    ),
    Mutant(
        "old-successes: a new round leaves the successes of the one before",
        lose_operation(Delete, "successes", lambda operations: "leader" not in folders_of(operations)),
        "a round begins without the successes of another",
        "seed 44 / job / finishing.1+0 freeze n1 30.720",
    ),
    Mutant(
        "no-second-look: reports that came while a header was on its way are not looked at again",
        alter_event(events.Registered, lose_early),
        "what ends a round is answered at once",
        "seed 4 / job nodes=2 min=1 work=4 / start+0 failed_start n1 1 / assigned.1+0.0024 etcd_forget_answers 50 1",
    ),
    Mutant(
        "members-watch-late: a new master's watch of the members begins one revision too late",
        Edit("master/master.py::Master.run", "revision + 1", "revision + 2"),
        "a job times out when nodes are missing",
        "seed 13 / job min=3",
    ),
    Mutant(
        "compacted-gone: who has gone while the master's watch was cut stays a member where the history is lost",
        Edit("master/master.py::Master", "self._tell(events.Unregistered(node))", "pass"),
        "after the faults a job trains again",
        "seed 1 / job nodes=1 ttl=8 min=1 work=20 interval=0 / start+0.5 start n2 / start+0.5 start n3 / "
        "running.1+0 power_off n3 / running.1+4.5 cut n1 m1 5 / running.1+4.5 cut n1 m2 5 / "
        "running.1+4.5 cut n1 m3 5 / running.1+9.2 start n4 / running.1+9.4 etcd_compact",
    ),
    Mutant(
        "compacted-reborn: where the history is lost, the next life of a node hides the loss of the one before",
        Edit(
            "master/machine/membership.py::Membership",
            """
            changes += self._lose(self._members.pop(node), number)
            before = None
            """,
            "pass",
        ),
        "a round says why it was opened",
        "seed 1 / job nodes=1 ttl=8 min=1 work=20 interval=0 / start+0.5 start n2 / running.1+0.1 cut n1 n2 12 / "
        "running.1+0.2 power_off n2 / running.1+4.5 cut n1 m1 5 / running.1+4.5 cut n1 m2 5 / "
        "running.1+4.5 cut n1 m3 5 / running.1+9.1 start n2 / running.1+9.45 etcd_compact",
    ),
    Mutant(
        "gone-success: a node that has succeeded and left is taken for lost",
        Edit(
            "master/machine/membership.py::Membership",
            'report.state == "succeeded" and report.round == number',
            "False",
        ),
        "a node that has succeeded and left is not lost",
        "seed 195 / job min=1 work=3 / running.1+1 worker n1 0 exit0 / running.1+1.0123 leave n1",
    ),
    Mutant(
        "takeover-incident: a new master forgets the incident that is still open",
        alter_event(events.Found, replace_fields(header=replace_fields(incident=None))),
        "each incident is counted once",
        "seed 270 / job / running.1+0 leave n1 / running.1+5 start n1",
    ),
    Mutant(
        "takeover-lost: a new master does not ask who is missing",
        Edit(
            "master/machine/membership.py::Membership",
            'each.incarnation not in present and header.state == "open"',
            "False",
        ),
        "a round says why it was opened",
        "seed 31 / job / start+3 kill n3",
    ),
    Mutant(
        "takeover-successes: a new master does not ask who has succeeded and gone",
        alter_event(events.Found, replace_fields(successes=())),
        "a success stays one",
        "seed 528 / job nodes=2 min=1 work=4 / finishing.1+0.4 kill n1",
    ),
    Mutant(
        "takeover-afresh: a new master begins another run where one member is lost",
        Edit(
            "master/machine/adoption.py::Adoption",
            "not returned and (not present.intersection(known))",
            "not present.issuperset(known)",
        ),
        "a run continues while a member of it lives",
        "seed 34 / job nodes=4 min=4 max=4 / round.1+0 leave n1",
    ),
    Mutant(
        "stopped-exits: workers that were told to stop are taken for failed",
        alter_event(events.Registered, alter_exits(stopped=False)),
        "the root cause is what was done",
        "seed 0 / job work=5 / running.1+1 worker n1 0 raise",
    ),
    Mutant(
        "late-cause: a root cause that arrives after the round was opened changes nothing",
        Edit("master/machine/incident_log.py::IncidentLog.note", "self.pending = self.verdict(number)", "pass"),
        "the root cause is what was done",
        "seed 108 / job work=5 / running.1+1 worker n1 0 raise",
    ),
    Mutant(
        "late-for-ever: what arrives long after its round was closed still changes the verdict",
        Edit(
            "master/machine/incident_log.py::IncidentLog.note",
            """
            if number != current.number:
                if not self._gathers(number, now):
                    return
            else: ...
            if (case := self._cases.get(number)) is None: ...
            """,
            """
            if number != current.number:
                if number not in self._cases:
                    return
            else: ...
            if (case := self._cases.get(number)) is None: ...
            """,
        ),
        "the root cause is what was done",
        "seed 6 / job nodes=1 min=1 restarts=5 work=30 / start+0.5 start n2 / start+0.5 start n3 / "
        "running.1+0.9 cut n3 * 4 / running.1+1 worker n2 0 exit3 / running.1+3 worker n3 0 segv / "
        "running.2+1 worker n2 0 exit3",
    ),
    Mutant(
        "charged-twice: an incident is charged with its round and again with the next",
        Edit(
            "master/machine/incident_log.py::IncidentLog.turn",
            "self.tally, self.pending = (tally, because)",
            "self.tally, self.pending = (charge(tally, because), because)",
        ),
        "only what happened is counted",
        "seed 8 / job / running.1+0 kill n1",
    ),
    Mutant(
        "peers-errors: an error that speaks of a lost peer is as good a cause as any",
        Edit(
            "master/machine/incident.py",
            "return _LINK_KINDS.get(link, 1 if exit_.message else 2)",
            "return 1 if exit_.message else 2",
        ),
        "the root cause is what was done",
        "seed 2 / job work=5 restarts=0 / running.1+1 worker n1 0 raise",
    ),
    Mutant(
        "peers-unmarked: an agent does not mark what only its framework's adapter takes for a lost peer",
        alter_event(events.Registered, alter_exits(lost_peer=False)),
        "the root cause is what was done",
        "seed 30 / job / running.1+1 worker n1 0 exit3",
    ),
    Mutant(
        "blame-first: whoever reports first is to blame",
        Edit(
            "master/machine/incident.py::Gathering.add",
            "self._root is None or kind < self._root_kind",
            "self._root is None",
        ),
        "the root cause is what was done",
        "seed 2 / job work=5 restarts=0 / running.1+1 worker n1 0 raise",
    ),
    Mutant(
        "segv: a segmentation fault is no crash",
        Edit("master/machine/incident.py", "{..., signal.SIGSEGV, ...}", "{..., ...}"),
        "the root cause is what was done",
        "seed 1 / job nodes=2 max=2 work=10 restarts=0 / running.1+1 worker n1 0 segv / "
        "running.1+1.0001 worker n2 0 raise",
    ),
    Mutant(
        "budget-more: the budget is one failure too large",
        alter_arguments(
            FATAL,
            max_restarts=lambda most: most + 1,
        ),
        "no round is opened beyond the budget",
        "seed 0 / job restarts=0 / assigned.1+5 worker n2 0 raise",
    ),
    Mutant(
        "repeats-more: a failure may be repeated once too often",
        alter_arguments(
            FATAL,
            same_failure_limit=lambda most: most + 1,
        ),
        "a job is stopped early when it repeats a failure",
        "seed 1 / job nodes=2 restarts=5 same=2 / running.1+1 worker n1 0 exit3 / "
        "running.2+1 worker n1 0 exit3 / running.3+1 worker n1 0 exit3",
    ),
    Mutant(
        "repeats-any: any two failures are the same",
        Edit("master/machine/incident.py::charge", "signature and signature == tally.signature", "signature"),
        "a job is stopped early when it repeats a failure",
        "seed 1 / job nodes=2 restarts=5 same=2 / running.1+1 worker n1 0 exit3 / running.2+1 worker n1 0 raise",
    ),
    Mutant(
        "problems-for-ever: workers that can never be started are tried for ever",
        alter_arguments(
            FATAL,
            tally=replace_fields(problems_in_row=0),
        ),
        "what cannot be started is not tried for ever",
        "seed 1 / job nodes=1 min=1 max=1 / assigned.1+0 taken_port n1 / assigned.2+0 taken_port n1 / "
        "assigned.3+0 taken_port n1 / assigned.4+0 taken_port n1 / assigned.5+0 taken_port n1 / "
        "assigned.6+0 taken_port n1",
    ),
    Mutant(
        "hasty-verdict: a verdict that ends the job does not wait for the evidence",
        alter_arguments(
            DECIDE,
            current=replace_fields(fault=replace_fields(settled_at=-math.inf)),
        ),
        "the root cause is what was done",
        "seed 4 / job work=5 restarts=0 / running.1+1 worker n1 0 raise",
    ),
    Mutant(
        "min-less: a round may have one node less than the minimum",
        alter_arguments(USABLE, self=replace_fields(min_nodes=lambda least: least - 1)),
        "a round's size is one that the user allowed",
        "seed 6 / job min=3 / start+0.4 leave n3",
    ),
    Mutant(
        "min-more: a round needs one node more than the minimum",
        alter_arguments(USABLE, self=replace_fields(min_nodes=lambda least: least + 1)),
        "a job wants no nodes when it is over, and not before",
        "seed 0 / job max=2",
    ),
    Mutant(
        "max-more: a round may have one node more than the maximum",
        alter_arguments(USABLE, self=replace_fields(max_nodes=lambda most: most + 1)),
        "a round's size is one that the user allowed",
        "seed 7 / job min=1 max=1",
    ),
    Mutant(
        "unit: the node unit is not kept",
        alter_arguments(USABLE, self=replace_fields(node_unit=1)),
        "a job wants no more than it may have",
        "seed 19 / job unit=2",
    ),
    Mutant(
        "leaver-in: a node that leaves is taken into the next round",
        Edit(
            "rendezvous/round.py::decide",
            "seen.member.report.state not in DEPARTING",
            'seen.member.report.state != "unfit"',
        ),
        "no leaving node is in a new round",
        "seed 4 / job / start+5 leave n1",
    ),
    Mutant(
        "unfit-in: a node that cannot start workers is taken into the next round",
        Edit(
            "rendezvous/round.py::decide",
            "seen.member.report.state not in DEPARTING",
            'seen.member.report.state != "leaving"',
        ),
        "no leaving node is in a new round",
        "seed 6 / job nodes=2 min=1 / start+0 failed_start n2 3",
    ),
    Mutant(
        "loss-called-leaving: where one node is lost as another leaves, the round is said to be for the one that "
        "leaves",
        Edit(
            "rendezvous/round.py",
            """
            if lost: ...
            elif left: ...
            elif fault: ...
            """,
            """
            if lost and not left: ...
            elif left: ...
            elif fault: ...
            """,
        ),
        "a round says why it was opened",
        "seed 7 / job nodes=4 min=1 max=4 work=20 / running.1+1 leave n2 / running.1+1 kill n3",
    ),
    Mutant(
        "survivors-order: survivors lose their order",
        alter_arguments(
            "rendezvous.ranks.order(survivors)",
            survivors=lambda nodes: sorted(nodes, key=lambda node: node.incarnation),
        ),
        "survivors keep their order",
        "seed 6 / job / start+0 failed_start n3 1",
    ),
    Mutant(
        "join-order: who comes last is taken first",
        alter_answer("rendezvous.round.survey", replace_fields(present=lambda present: present[::-1])),
        "nodes are admitted in order of arrival",
        "seed 2 / job nodes=1 min=1 max=2 work=20 settle=1 / start+1 start n2 / start+2 start n3",
    ),
    Mutant(
        "one-success: the job is done when one node has succeeded",
        Edit("rendezvous/round.py::survey", "succeeded.issuperset(counting)", "bool(succeeded)"),
        "success is when every worker has succeeded",
        "seed 0 / job max=2",
    ),
    Mutant(
        "old-success: the success of an earlier round counts for this one",
        Seam("rendezvous.round.survey", succeed_again),
        "success is when every worker has succeeded",
        "seed 138 / job / finishing.1+0 kill n1",
    ),
    Mutant(
        "no-waking: a joining node that has waited long enough is admitted only when something else happens",
        alter_answer(
            "rendezvous.round.decide", lambda found: (Keep(), found[1]) if isinstance(found[1], Settling) else found
        ),
        "a node that can be admitted is admitted",
        "seed 164 / job last_call=0",
    ),
    Mutant(
        "settle-for-ever: joining nodes wait until nobody else arrives",
        Edit("rendezvous/round.py", "min(arrived + policy.settle, patience)", "arrived + policy.settle"),
        "a node that can be admitted is admitted",
        "seed 1 / job nodes=2 min=1 max=12 work=40 settle=2 interval=0 / running.1+0.5 start n3 / "
        "running.1+2 start n4 / running.1+3.5 start n5 / running.1+5 start n6 / running.1+6.5 start n7 / "
        "running.1+8 start n8 / running.1+9.5 start n9 / running.1+11 start n10 / running.1+12.5 start n11",
    ),
    Mutant(
        "settle-alone: who had to wait for others to come leaves those no time to settle",
        Edit("rendezvous/round.py", "need - 1", "0"),
        "joining nodes restart the script as the user said",
        "seed 1 / job nodes=2 max=4 unit=2 work=20 settle=2 interval=0 / running.1+1 start n3 / running.1+9 start n4",
    ),
    Mutant(
        "no-interval: joining nodes restart the script as often as they like",
        alter_arguments(DECIDE, current=replace_fields(grown_at=-math.inf)),
        "joining nodes restart the script as the user said",
        "seed 123 / job min=1 last_call=0 settle=0 etcd=1",
    ),
    Mutant(
        "scale-up-never: --scale-up=never is not heard",
        alter_arguments(DECIDE, policy=replace_fields(scale_up="now")),
        "joining nodes restart the script as the user said",
        "seed 9 / job scale_up=never last_call=0",
    ),
    Mutant(
        "late-join: a joining node restarts workers that are finishing",
        alter_arguments(DECIDE, found=replace_fields(finishing=False)),
        "joining nodes do not restart what is finishing",
        "seed 0 / job settle=2 / round.1+5 kill n2 / round.1+5.2 start n2 / round.1+5.3 worker n1 0 exit0",
    ),
    Mutant(
        "first-rank: ranks do not count the workers of a node",
        Edit("rendezvous/ranks.py::places", "place.first_rank + workers.nproc", "place.first_rank + 1"),
        "ranks are 0..n-1, each once",
        "seed 15 / job nproc=2",
    ),
    Mutant(
        "lease-is-life: a node whose lease has ended ends its workers, and comes as another",
        alter_arguments(ACT, state=lambda state: replace(state, key=NodeKey(came=True)) if state.key.lapsed else state),
        "a store that was away costs no worker",
        "seed 1 / job nodes=2 min=1 max=2 work=30 / running.1+1 etcd_stop 3 15",
    ),
    Mutant(
        "vanished-is-lost: a master takes a lease that ended while the store was away for the loss of its holder",
        alter_event(events.StoreAway, lambda told, controller, _: told if controller.phase == "loading" else None),
        "a store that was away costs no worker",
        "seed 91 / job last_call=0 ttl=3 data=checkpoint / running.1+0.4 etcd_stop 2 0.762",
    ),
    Mutant(
        "missing-is-lost: a new master takes who is missing for lost, although the store was away",
        alter_event(events.StoreAway, lambda told, controller, _: None if controller.phase == "loading" else told),
        "a store that was away costs no worker",
        "seed 1 / job nodes=2 min=1 max=2 work=30 etcd=1 / running.1+1 etcd_stop 1 15",
    ),
    Mutant(
        "young-knows: a new master that could not register while the store was away takes who is missing for lost",
        Edit(
            "elastic_agent/candidate.py::Candidate",
            "self._memory = Memory()",
            "self._memory = Memory(asyncio.get_running_loop().time())",
        ),
        "a store that was away costs no worker",
        "seed 9 / job max=2 data=ack / started.1+0.02 etcd_stop 3 6.498",
    ),
    Mutant(
        "everybody-young: each new master waits for missing nodes to register again, also where the store was not away",
        Seam("master.machine.controller.Controller.on", call_store_away),
        "what ends a round is answered at once",
        "seed 7073 / job nodes=1 min=1 max=1 etcd=1 guard=0 / start+5.7876 kill n1 / "
        "start+5.79 worker n1 0 killed / start+6.5 start n1",
    ),
    Mutant(
        "abandoned-long-ago: a standby that finds a run without any of its nodes counts the wait for the next run "
        "from its own start",
        Edit(
            "master/machine/adoption.py::Adoption",
            "self._memory.abandoned.setdefault(header.run, now)",
            "self._memory.began",
        ),
        "a job times out when its time is over",
        "seed 1 / job nodes=3 min=2 max=2 work=60 join=20 / running.1+23 power_off n3 / running.1+25 power_off n2",
    ),
    Mutant(
        "back-after-all: a node whose lease has ended takes up its registration in a job that has gone on without it",
        lose_compare("round", lambda _, operations: folders_of(operations) == {"nodes"}),
        "a node of a run that has ended begins no other run",
        "seed 11041 / job min=1 work=4 restarts=0 / registered.n1+0 pause n3 15 / running.2+1 worker n1 0 raise / "
        "start+5 etcd_compact",
    ),
    Mutant(
        "back-though-left-out: a node whose lease has ended comes back where a round was opened without it while it "
        "had workers ready",
        alter_arguments(
            "elastic_agent.machine.plan.replaced(state, now)",
            state=lambda state: replace(state, known=replace(state.known, assigned=state.workers.round > 0)),
        ),
        "the dead do not come back",
        "seed 1 / job inplace=1 / finishing.1+0 freeze n3 6.292",
    ),
    Mutant(
        "back-without-a-header: a node that knows no round takes up its registration, though a run has come and gone",
        Edit("rendezvous/membership.py::resume", "not header_revision", "False"),
        "every agent ends",
        "seed 13211 / job min=1 / registered.n2+0.002 pause n2 24.089",
    ),
    Mutant(
        "missed-success: a node that heard of no round is refused as if it came late, although it was there before "
        "the success",
        Edit("rendezvous/membership.py::refuse_if_over", "own_run is not None", "own_run"),
        "an exit code says what happened",
        "seed 13016 / job min=1 work=4 ttl=3 / registered.n2+0.004 cut n2 * 15",
    ),
    Mutant(
        "back-though-evicted: a node that was evicted takes up its registration again",
        lose_compare("evictions"),
        "the dead do not come back",
        "seed 428 / job max=4 last_call=2 inplace=1 / registered.n3+1 reset n2 * 15.153",
    ),
    Mutant(
        "abandoned-come-back: who was in a run that another has replaced takes up its registration in that run",
        alter_effect(effects.Abandon, replace_fields(missing=())),
        "a run continues while a member of it lives",
        "seed 10 / job nodes=2 / assigned.1+0.0043 cut n1 * 4.675 / assigned.1+0 kill n2 / assigned.1+0 start n2",
    ),
    Mutant(
        "report-by-key: a report is written without asking whose key it is",
        lose_compare("nodes", lambda compares, _: len(compares) == 2 and folders_of(compares) == {"nodes"}),
        "the dead do not come back",
        "seed 1 / job min=3 etcd=1 / start+0.4 leave n3",
    ),
    Mutant(
        "name-taken: a name that another holds is taken from it",
        lose_compare("nodes", lambda compares, _: "outcome" in folders_of(compares)),
        "a name has one owner",
        "seed 31 / job / registered.n2+0 kill n3 / registered.n2+0 start n3",
    ),
    Mutant(
        "assignment-of-namesake: a reborn node takes the assignment of the dead one",
        Edit(
            "rendezvous/membership.py::read_assignment",
            "assignment.incarnation == member.incarnation and assignment.round == header.number",
            "assignment.round == header.number",
        ),
        "a reborn agent inherits nothing",
        "seed 2 / job nodes=1 min=1 / running.1+0 freeze n1 13.075",
    ),
    Mutant(
        "success-unwritten: a success is reported under the node's lease alone",
        lose_operation(Put, "successes"),
        "a success stays one",
        "seed 10 / job / finishing.1+0.05 kill n1",
    ),
    Mutant(
        "deregister-by-key: a node that leaves removes whoever has its name",
        lose_compare("nodes", lambda compares, _: len(compares) == 1),
        "only its own node or the master removes a member",
        "seed 116 / job nodes=2 min=1 last_call=0 / running.1+1 leave n1 / running.1+1.02 etcd_freeze m3 8 / "
        "running.1+6 start n1",
    ),
    Mutant(
        "depose-namesake: with a dead master, the next life of its node is evicted",
        Edit(
            "rendezvous/election.py::depose",
            "node is not None and incarnation_of(node.value) == leader.incarnation",
            "node is not None",
        ),
        "only its own node or the master removes a member",
        "seed 13 / job restarts=0 / running.1+0.9 freeze n2 5 / running.1+1 worker n3 0 exit3 / "
        "round.2+0.1 kill n1 / round.2+0.2 start n1",
    ),
    Mutant(
        "watch-repeats: a watch that is resumed tells the last revision again",
        Edit("rendezvous/store/etcd/watch.py::follow", "revision + 1", "revision"),
        "a watch tells each change once and in order",
        "seed 0 / job min=1 max=1 / running.1+0 reset n1 m2 7.154",
    ),
    Mutant(
        "watch-skips: a message that holds only the first changes is taken for all",
        Edit("rendezvous/store/etcd/watch.py::follow", "not response.events", "True"),
        "a watch tells each change once and in order",
        "seed 10 / job nodes=6 max=6 / round.1+0 deafen * n1 0.5 / round.1+0.615 reset n1 * 0.1",
    ),
    Mutant(
        "older-header: an older header that arrives late replaces the newer",
        Edit("elastic_agent/machine/known_round.py::take", "known.revision > revision", "False"),
        "only what happened is counted",
        "seed 23 / job min=1 last_call=0 settle=0 interval=0 / round.1+0.3 worker n2 0 raise / "
        "started.2+0.5 worker n2 0 exit3",
    ),
    Mutant(
        "failed-starts-add-up: starts that failed long ago still count as if they were in a row at a node",
        Edit(
            "elastic_agent/machine/agent_machine.py",
            "replace(workers, failed_starts=0, unready_times=0, keeps=workers.keeps and not anew)",
            "replace(workers, unready_times=0, keeps=workers.keeps and not anew)",
        ),
        "a node that can start workers stays",
        "seed 1 / job / assigned.1+0 failed_start n1 1 / running.2+1 failed_start n1 1 / running.2+1 worker n2 0 raise",
    ),
    Mutant(
        "campaign-blind: an election whose answer was lost is taken for won",
        Edit(
            "rendezvous/election.py::campaign",
            """
            listing = await store.list(keys.leader)
            if not listing.items: ...
            held, revision = (listing.items[0], listing.revision)
            """,
            """
            listing = await store.list(keys.leader)
            if not listing.items: ...
            return Leadership(keys.leader, listing.items[0].create_revision)
            """,
        ),
        "a deposed master changes nothing",
        "seed 1 / job etcd=1 / registered.n1+0 deafen m1 n1 1.123",
    ),
    Mutant(
        "depose-again: an agent deposes one master after the other",
        Edit(
            "elastic_agent/candidate.py::Candidate.run",
            "await self._follow(won) and self._now() - deposed_at >= election.DEPOSE_PAUSE and ...",
            "await self._follow(won) and ...",
        ),
        "no node deposes again and again",
        "seed 83 / job max=2 / assigned.1+0.004 kill n1 / start+3 kill n3",
    ),
    Mutant(
        "depose-unaware: an agent that lost the answer to its deposition forgets that it may have deposed",
        Edit(
            "elastic_agent/candidate.py::Candidate",
            "await election.depose(self._store, self._keys, held, leader, why, lease) or doubt",
            "await election.depose(self._store, self._keys, held, leader, why, lease)",
        ),
        "no node deposes again and again",
        "seed 9 / job min=1 work=60 etcd=1 / running.1+1 kill n1 / running.1+1 etcd_forget_answers 100 1 / "
        "running.1+6 kill n2",
    ),
    Mutant(
        "silence-is-death: a time-out is taken for a refusal",
        Edit("rendezvous/failure_detector.py::watch_until_dead", "ConnectionRefusedError", "OSError"),
        "only the dead are evicted",
        "seed 1 / job work=20 / running.1+1 cut n1 n2 25",
    ),
    Mutant(
        "never-known: no death is ever proven",
        Edit(
            "rendezvous/failure_detector.py::watch_until_dead",
            "(True, iter(REDIAL_PAUSES))",
            "(False, iter(REDIAL_PAUSES))",
        ),
        "only failures are counted as failures",
        "seed 9 / job / round.1+2 kill n3",
    ),
    Mutant(
        "no-re-read: workers are started on a header that is not the newest",
        Edit(
            "elastic_agent/node/round_follower.py::RoundFollower.confirm",
            "fresh is None or fresh[0] != header",
            "fresh is None",
        ),
        "the header is read again just before workers start",
        "seed 158 / job nproc=2 last_call=0 settle=2 / running.1+0 failed_start n3 1",
    ),
    Mutant(
        "no-read: the header is not read again before workers start",
        Edit(
            "elastic_agent/node/round_follower.py::RoundFollower.confirm",
            """
            try: fresh = await membership.read_header(self._store, self._keys)
            except StoreUnavailable as error: ...
            except Unreadable as error: ...
            if fresh is None or fresh[0] != header: ...
            """,
            """
            try: fresh = (header, 0)
            except StoreUnavailable as error: ...
            except Unreadable as error: ...
            if fresh is None or fresh[0] != header: ...
            """,
        ),
        "the header is read again just before workers start",
        "seed 0 / job",
    ),
    Mutant(
        "lease-forgotten: nobody renews the lease",
        Seam(
            "rendezvous.store.etcd.etcd_store.EtcdStore.keep_alive",
            lambda *_: asyncio.get_running_loop().create_future(),
        ),
        "one member of the store may fail",
        "seed 1 / job",
    ),
    Mutant(
        "old-problem: the problem of one round is reported of the next",
        Edit(
            "elastic_agent/machine/agent_machine.py::apply_event",
            'problem = workers.problem if known.revision == revision else ""',
            "problem = workers.problem",
        ),
        "only what happened is counted",
        "seed 11 / job nodes=1 min=1 last_call=2 / elected.1+1 taken_port n1",
    ),
    Mutant(
        "stale-end: the end of an earlier run is taken for this one's",
        alter_arguments(ACT, state=replace_fields(known=replace_fields(stale=""))),
        "an exit code says what happened",
        "seed 7 / job work=5 restarts=0 / running.1+0.9 freeze n2 9 / running.1+1 worker n1 0 raise / "
        "running.1+3.9857 start n1 / running.1+3.7263 start n3",
    ),
    Mutant(
        "beside: new workers are started beside the old",
        Seam("elastic_agent.machine.plan.act", start_beside),
        "workers are told before a node joins",
        "seed 1 / job nodes=1 min=1 max=2 work=10 settle=0 interval=0 / running.1+1 start n2",
    ),
    Mutant(
        "leaves-unheard: a node's workers are told to go before the store has the news that it leaves",
        alter_arguments(ACT, state=replace_fields(notice=replace_fields(at=-math.inf))),
        "a node reports that it leaves before its workers end",
        "seed 1 / job nodes=1 min=1 work=30 / start+0.5 start n2 / running.1+1 cut n2 m1 0.7 / "
        "running.1+1 cut n2 m2 0.7 / running.1+1 cut n2 m3 0.7 / running.1+1 leave n2",
    ),
    Mutant(
        "last-master: the last node of a suspended job does not wait for its own master to end it",
        alter_arguments(ACT, state=replace_fields(machine=replace_fields(leading=False))),
        "no key is left",
        "seed 1 / job nodes=2 max=2 work=20 / running.1+1 leave n1 / running.1+8 leave n2",
    ),
    Mutant(
        "timeout-code: a timeout ends with the code of a failure",
        alter_answer("elastic_agent.machine.plan.exit_code", lambda code: FAILED if code == TIMEOUT else code),
        "an exit code says what happened",
        "seed 18 / job min=4 max=4",
    ),
    Mutant(
        "store-gone-kills: workers that run are ended when the store does not answer",
        alter_arguments(
            ACT,
            state=lambda state: (
                replace(state, workers=replace(state.workers, alive=0)) if state.machine.store_gone else state
            ),
        ),
        "workers that run are left alone",
        "seed 1 / job nodes=2 work=60 / running.1+1 etcd_down 30",
    ),
    Mutant(
        "suspension-uncharged: a failure is forgotten when the next incident suspends the job",
        alter_effect(effects.Publish, leave_uncharged),
        "each incident is counted once",
        "seed 1 / job nodes=2 min=2 max=2 work=6 restarts=1 / running.1+1 worker n1 0 raise / "
        "running.2+2.5 kill n2 / running.2+4 start n2 / running.4+2 worker n1 0 exit3",
    ),
    Mutant(
        "problems-never-reset: starts that failed long ago still count as if they were in a row",
        Edit(
            "master/machine/incident.py::charge",
            """
            tally = dataclasses.replace(tally, problems_in_row=0)
            nodes = _nodes(incident)
            """,
            "nodes = _nodes(incident)",
        ),
        "a job fails when its budget is spent",
        "seed 1 / job nodes=1 min=1 max=1 work=6 / assigned.1+0 taken_port n1 / assigned.2+0 taken_port n1 / "
        "assigned.3+0 taken_port n1 / running.4+1 worker n1 0 raise / assigned.5+0 taken_port n1 / "
        "assigned.6+0 taken_port n1",
    ),
    Mutant(
        "orphan-founds: a node whose run has ended without it begins the job anew",
        Edit(
            "elastic_agent/node/registration.py::NodeRegistration",
            "known.own_run and (found is None or found[0].final)",
            "False",
        ),
        "a node of a run that has ended begins no other run",
        "seed 1 / job nodes=2 min=1 max=2 restarts=0 ttl=3 work=20 / running.1+1 cut n2 * 30 / "
        "running.2+1 worker n1 0 raise / running.2+20 etcd_compact",
    ),
    Mutant(
        "answered-too-soon: the master answers before the ledger is in the store",
        Edit(
            "master/data/ledger_service.py::Ledgers",
            """
            for batch in _batches(changed) if changed else [()]: ...
            for waiting in new: ...
            for waiting, answer in given.items(): ...
            """,
            """
            for waiting, answer in given.items():
                waiting.give(answer)
            for batch in _batches(changed) if changed else [()]: ...
            for waiting in new: ...
            for waiting, answer in given.items(): ...
            """,
        ),
        "what a worker is told a successor knows",
        "seed 0 / job data=checkpoint",
    ),
    Mutant(
        "ledger-unseen: a ledger is written whatever was written there meanwhile",
        lose_compare(DATA),
        "a ledger does not go back",
        "seed 16 / job nodes=1 min=1 nproc=2 work=4 ttl=8 data=ack records=20 shard=1 / leased.6+0 etcd_freeze m1 1.5",
    ),
    Mutant(
        "ledger-unfenced: a deposed master writes its ledgers",
        lose_compare("leader", lambda _, operations: folders_of(operations) & DATA and folders_of(operations) <= DATA),
        "a deposed master changes nothing",
        "seed 0 / job nodes=1 min=1 data=checkpoint / start+2 deafen n1 * 10.871",
    ),
    Mutant(
        "answered-unproven: an answer that changes nothing is given without asking who leads",
        Edit("master/data/ledger_service.py::Ledgers", "[()]", "[]"),
        "a deposed master answers nothing",
        "seed 51 / job nodes=2 min=1 nproc=4 work=4 ttl=3 data=ack records=20 shard=1 / leased.5+0.001 freeze n2 5",
    ),
    Mutant(
        "ledger-unread: a new master does not read the ledgers",
        Seam("rendezvous.store.etcd.etcd_store.EtcdStore.list", list_no_data),
        "every agent ends",
        "seed 2 / job min=1 data=checkpoint / leased.2+0 kill n2",
    ),
    Mutant(
        "leases-of-another-run: what the workers of another run had is taken for that of this one",
        Edit(
            "master/data/ledger_service.py::Ledgers",
            """
            if state.run == run: ...
            else: ...
            """,
            """
            if True: ...
            else: ...
            """,
        ),
        "only workers of an old round are told so",
        "seed 1736 / job nodes=1 min=1 data=ack / running.1+0.0006 worker n1 0 killed / leased.3+0 leave n1 / "
        "running.2+2 start n1",
    ),
    Mutant(
        "asked-again: a request that is asked again has its effect again",
        Edit("master/data/ledger.py::Ledger.answer", "request.sequence == worker.sequence + 1", "True"),
        "every record is in the model once",
        "seed 7 / job min=1 data=checkpoint / leased.7+0 worker n3 0 killed",
    ),
    Mutant(
        "leases-forgotten: what the last round's workers had is not leased anew",
        Edit(
            "master/data/ledger.py::Ledger",
            "for piece in back.values(): self._return(piece)",
            "pass",
        ),
        "a shard is done when its output is written",
        "seed 0 / job min=1 data=ack / leased.4+0 kill n1",
    ),
    Mutant(
        "cut-too-soon: a cut does not wait for all ranks",
        Edit(
            "master/data/ledger.py::Ledger",
            """
            if len(self._votes) < request.world: ...
            steps = {vote.step for vote in self._votes.values()}
            """,
            """
            if len(self._votes) < 1: ...
            steps = {vote.step for vote in self._votes.values()}
            """,
        ),
        "a position says what the model holds",
        "seed 0 / job data=checkpoint",
    ),
    Mutant(
        "leased-twice: what came back is leased and stays to be leased",
        Edit(
            "master/data/ledger.py::Ledger",
            """
            del self._returned[:len(pieces)]
            more = min(min(wants, MAX_WANTED) - len(pieces), self.dataset.total - self._frontier)
            """,
            "more = min(min(wants, MAX_WANTED) - len(pieces), self.dataset.total - self._frontier)",
        ),
        "a shard is leased to one rank",
        "seed 0 / job min=1 data=checkpoint / leased.7+0 kill n1",
    ),
    Mutant(
        "marks-added: marks are counted from what the lease gave",
        Edit("master/data/ledger.py::Ledger", "max(piece.offset, mark.offset)", "piece.offset + mark.offset"),
        "a position says what the model holds",
        "seed 21 / job data=checkpoint shard=5",
    ),
    Mutant(
        "cut-without-leases: a cut takes what workers have for done",
        Edit("master/data/ledger.py::Ledger.position", "rest.update(worker.leases)", "pass"),
        "a position says what the model holds",
        "seed 0 / job data=checkpoint",
    ),
    Mutant(
        "done-by-both: the slower of two workers is not told that the other has done its shard",
        Edit(
            "master/data/ledger.py::Ledger",
            """
            other.lost += (shard_index,)
            other.head_since = now
            """,
            "other.head_since = now",
        ),
        "every shard has one accepted output",
        "seed 0 / job data=ack",
    ),
    Mutant(
        "given-back-lost: what is given back is leased to nobody",
        Edit("master/data/ledger.py::Ledger", "insort(self._returned, piece)", "pass"),
        "a shard is done when its output is written",
        "seed 1 / job nodes=2 nproc=2 work=2 data=ack shard=1 epochs=2 / leased.8+0 etcd_forget_answers 20 1.935",
    ),
    Mutant(
        "origin-ignored: a round begins where the last one was, not at the position that its ranks have restored",
        Edit(
            "master/data/ledger.py::Ledger",
            """
            self._frontier = min(origin.frontier, total)
            self._returned = sorted(...)
            self._state = replace(self._state, begun=True, origin=restored)
            """,
            """
            self._frontier = max(self._state.frontier, min(origin.frontier, total))
            self._returned = sorted(...)
            self._state = replace(self._state, begun=True, origin=restored)
            """,
        ),
        "a position says what the model holds",
        "seed 1 / job min=1 data=checkpoint / leased.4+0 kill n2",
    ),
    Mutant(
        "asked-anew: a request that is sent to another master gets another number",
        Edit(
            "elastic_agent/master_client.py::Link.ask",
            """
            if ledgers := self._here():
                return await ledgers.answer(request, self._caller())
            ...
            """,
            """
            try:
                if ledgers := self._here():
                    return await ledgers.answer(request, self._caller())
                ...
            except (Deposed, RpcError, OSError):
                object.__setattr__(request, "sequence", request.sequence + 1)
                raise
            """,
        ),
        "a valid request is not refused",
        "seed 0 / job nodes=2 data=ack / started.1+0 reset n1 n2 2.385",
    ),
    Mutant(
        "answers-mixed: all requests on a connection have one number",
        Edit("rendezvous/rpc/client.py::Connection.ask", "next(self._ids)", "1"),
        "what a worker is told a successor knows",
        "seed 0 / job nproc=2 data=checkpoint",
    ),
    Mutant(
        "lost-connection: a lost connection to the master stays in use",
        Edit(
            "rendezvous/rpc/client.py::Connection.hang_up",
            """
            self.lost = True
            self._writer.close()
            """,
            "self._writer.close()",
        ),
        "every agent ends",
        "seed 1 / job min=1 data=checkpoint / leased.4+0 kill n2",
    ),
    Mutant(
        "always-current: a worker is told that its round is current without a look",
        Edit(
            "elastic_agent/worker_server.py::CallHandler",
            'header.number == number and header.state in ("open", "preempted")',
            "True",
        ),
        "a round is current when a worker is told so",
        "seed 306 / job nodes=2 work=0.1 data=checkpoint every=1 / running.1+0.21 worker n1 0 killed",
    ),
    Mutant(
        "clean-up-ledgers: the end leaves the ledgers in the store",
        lose_operation(Delete, "ledgers"),
        "no key is left",
        "seed 0 / job data=checkpoint",
    ),
    Mutant(
        "drop-late: the removal of an earlier run's data compares no header, so that a late attempt removes live "
        "leases",
        lose_compare("round", lambda _, operations: operations and folders_of(operations) <= DATA),
        "a valid request is not refused",
        "seed 332 / job nodes=1 min=1 max=1 ttl=3 data=checkpoint / running.1+1 kill n1 / running.1+6 start n1 / "
        "elected.2+3.015 etcd_freeze m3 3",
    ),
    Mutant(
        "evidence-quadratic: the master compares each exit with all that it knows, so that its loop stands still "
        "when many workers fail",
        Edit(
            "master/machine/incident.py::Gathering.add", "failed not in self._exits", "failed not in list(self._exits)"
        ),
        "one member of the store may fail",
        "seed 1 / job nodes=24 min=24 max=24 nproc=16 work=3 ttl=3 cost=60 / running.1+1 worker n1 0 raise",
    ),
    Mutant(
        "drop-queues: the next run removes the queues of one that was broken off",
        alter_effect(effects.Abandon, replace_fields(queues=True)),
        "only a success removes a queue",
        "seed 38 / job min=1 scale_up=never last_call=0 data=ack / start+3 kill n2",
    ),
    Mutant(
        "slow-never: nobody is given what a slow worker has, or one that has ended",
        Changes(
            (
                Edit("master/data/ledger.py::Ledger", "self._end.heads", "()"),
                Seam("master.data.ledger.Ledger.end_workers", lambda real, ledger, ranks: False),
            )
        ),
        "every agent ends",
        "seed 2 / job data=ack / leased.3+0 worker n2 0 exit0",
    ),
    Mutant(
        "lowest-step: a new process group continues from the lowest step that one of its ranks has",
        Edit("adapters/client/commits.py::transfers", "newest", "min"),
        "no committed step is lost while a worker that has it lives",
        "seed 0 / job inplace=1 / running.1+1 worker n1 0 killed",
    ),
    Mutant(
        "any-source: a rank that is a step behind brings its state to others, and keeps it",
        Edit("adapters/client/commits.py::transfers", "claim == best", "claim.step != NOTHING"),
        "no committed step is lost while a worker that has it lives",
        "seed 49 / job nodes=4 max=4 inplace=1 / committed.1+0 worker n4 0 raise",
    ),
    Mutant(
        "suspended-ends: workers that keep their process are ended while the job waits for nodes",
        alter_arguments(
            ACT,
            state=lambda state: (
                replace(state, group=replace(state.group, staying=0))
                if state.header and state.header.state == "waiting"
                else state
            ),
        ),
        "a worker that is free in time keeps its process",
        "seed 0 / job min=3 inplace=1 / running.1+1 kill n2",
    ),
    Mutant(
        "forgets-the-end: an agent forgets, when a worker hangs up, that it has trained to the end",
        Edit("elastic_agent/workers/process_groups.py::ProcessGroups", "if not stayer.done: ...", "if True: ..."),
        "joining nodes do not restart what is finishing",
        "seed 10104 / job min=1 work=2 inplace=1 step=0.7 / finishing.1+0 kill n3 / start+5 worker n2 0 raise / "
        "start+7 kill n2 / start+8.06 start n2",
    ),
    Mutant(
        "breaks-for-joining-nodes: for a joining node process groups are broken, where they could be left after a step",
        Seam("elastic_agent.machine.plan.act", reform_at_once),
        "no worker loses a step for a joining node",
        "seed 0 / job nodes=2 inplace=1 / running.1+1 start n3",
    ),
    Mutant(
        "asked-for-ever: a worker that has been given a rank still counts as one that waits for it",
        Edit(
            "elastic_agent/workers/process_groups.py::ProcessGroups.assign",
            'found.round, found.asked, found.formed, found.why = number, False, False, ""',
            'found.round, found.formed, found.why = number, False, ""',
        ),
        "a worker that gets a rank has asked for it",
        "seed 1 / job nodes=2 inplace=1 / running.1+1 start n3",
    ),
    Mutant(
        "unready-joining-nodes: in place, a joining node is admitted before its workers are ready",
        Edit("rendezvous/round.py", "not seen.member.report.ready and now < until[seen.order]", "now < 0"),
        "no worker waits for a joining node's workers",
        "seed 0 / job nodes=2 settle=0 interval=0 inplace=1 / running.1+1 start n3",
    ),
    Mutant(
        "no-time-to-leave: workers that keep their process have no time to leave a process group that was broken",
        Edit("elastic_agent/workers/handover.py::wait_for_late", "if not late: ...", "if True: ..."),
        "a worker that is free in time keeps its process",
        "seed 0 / job inplace=1 / running.1+1 worker n1 0 killed",
    ),
    Mutant(
        "dead-hold-sockets: an agent keeps the sockets of its dead workers open",
        Edit(
            "elastic_agent/workers/process_groups.py::ProcessGroups",
            """
            for descriptor in found.rights: ...
            self._part(found)
            """,
            "for descriptor in found.rights: ...",
        ),
        "every agent ends",
        "seed 0 / job inplace=1 / running.1+1 worker n1 0 exit0",
    ),
    Mutant(
        "silent-about-a-broken-group: workers whose process group broke, though nobody is known to be lost, wait for "
        "ever",
        alter_answer("elastic_agent.workers.process_groups.ProcessGroups.members", replace_fields(broke="")),
        "every agent ends",
        "seed 0 / job inplace=1 / running.1+1 worker n1 0 exit0",
    ),
    Mutant(
        "unkillable-unnoticed: a node whose worker cannot be killed does not leave for it",
        Edit(
            "elastic_agent/workers/worker_group.py::WorkerGroup",
            "if unkillable := self.processes.unkillable: ...",
            "if (unkillable := self.processes.unkillable) and False: ...",
        ),
        "a node that cannot end its workers leaves",
        "seed 7 / job nodes=2 min=1 max=2 work=6 / running.1+0.5 hold n1 0 / running.1+1 worker n2 0 raise",
    ),
    Mutant(
        "hasty-writes: an attempt at a write is given up after 2 s also where all members of the store need longer",
        Edit("rendezvous/store/etcd/session.py::Session", "Patience(LONGEST_WRITE)", "Patience()"),
        "an exit code says what happened",
        "seed 1 / job nodes=2 max=2 write=2.2",
    ),
    Mutant(
        "lease-unused: nobody renews a lease while the write that first uses it takes long",
        Edit(
            "elastic_agent/node/registration.py::NodeRegistration.register",
            "self._while_kept(self._unconfirmed, registering)",
            "registering",
        ),
        "one member of the store may fail",
        "seed 3 / job nodes=2 max=2 write=3",
    ),
    Mutant(
        "lease-over-as-granted: a lease whose first attempt was granted long before the first answer is used",
        Edit(
            "rendezvous/store/etcd/etcd_store.py::EtcdStore.grant",
            "self._session.now() - began < ttl / 2 or await self._renew(lease, until)",
            "True",
        ),
        "an exit code says what happened",
        "seed 0 / job nodes=2 max=2 write=2.5",
    ),
    Mutant(
        "suspended-anew: each new master gives a suspended job its whole time again",
        alter_event(events.Found, lambda told, _, now: replace(told, published=now)),
        "a job times out as soon as its time is over",
        "seed 1 / job nodes=3 min=3 max=3 work=20 recovery=30 / running.1+1 kill n3 / running.1+3 freeze n1 7 / "
        "running.1+12 freeze n2 7 / running.1+21 freeze n1 7 / running.1+30 freeze n2 7 / "
        "running.1+39 freeze n1 7",
    ),
    Mutant(
        "first-wait-anew: each new master gives the first round its whole time again",
        Seam(
            "master.machine.controller.Controller.__init__",
            lambda real, self, keys, terms, now, memory, **how: real(
                self, keys, terms, now, memory=replace(memory, began=now), **how
            ),
        ),
        "a job times out as soon as its time is over",
        "seed 1 / job nodes=2 min=3 max=3 work=20 join=30 / registered.n2+3 freeze n1 7 / "
        "registered.n2+12 freeze n2 7 / registered.n2+21 freeze n1 7 / registered.n2+30 freeze n2 7 / "
        "registered.n2+39 freeze n1 7",
    ),
    Mutant(
        "roles-typed: a typed node is given another role",
        Edit("rendezvous/roles.py", "(each for each in waiting if not each.node_role)", "(each for each in waiting)"),
        "a typed node takes its own role only",
        "seed 6 / job roles=worker:2:3:all:yes,evaluator:0:1:one:yes typed=evaluator,evaluator,evaluator,",
    ),
    Mutant(
        "roles-typed-moved: a typed node is moved to another role",
        Edit("rendezvous/roles.py", "member and (not member.node_role)", "member"),
        "a typed node takes its own role only",
        "seed 25 / "
        "job nodes=4 join=15 ttl=8 roles=worker:2:3:all:yes,evaluator:0:1:one:yes "
        "typed=worker,evaluator,evaluator,worker / "
        "assigned.1+0.0053 kill n1",
    ),
    Mutant(
        "roles-minimum: a round is opened although a role lacks nodes",
        alter_answer("rendezvous.roles.fill", replace_fields(missing=())),
        "a round's size is one that the user allowed",
        "seed 3 / job nodes=2 interval=8 shutdown=1 etcd=1 roles=ps:1:1:all:no,worker:1:2:all:yes / "
        "running.1+0.0122 leave n1",
    ),
    Mutant(
        "roles-maximum: a role gets one node more than its maximum",
        alter_arguments("rendezvous.roles.fill(roles)", roles=alter_each(replace_fields(max_nodes=lambda n: n + 1))),
        "each role has its nodes",
        "seed 0 / job roles=chief:1:1:one:yes,worker:1:2:one:yes,evaluator:0:1:one:no",
    ),
    Mutant(
        "roles-forgotten: survivors forget their role",
        Seam(
            "rendezvous.roles.fill",
            lambda real, roles, before, *rest, **how: real(
                roles, alter_each(replace_fields(role=roles[-1].name))(before), *rest, **how
            ),
        ),
        "a round's size is one that the user allowed",
        "seed 1 / job nodes=5 interval=0 roles=ps:1:1:all:no,worker:1:3:one:yes",
    ),
    Mutant(
        "roles-no-standby: a node changes its role although a standby is there",
        Seam(
            "rendezvous.roles.fill",
            lambda real, roles, before, newcomers, **how: real(roles, before, () if before else newcomers, **how),
        ),
        "a node that can be admitted is admitted",
        "seed 21 / "
        "job nodes=5 nproc=2 work=6 restarts=0 last_call=2 settle=0 ttl=3 shutdown=1 "
        "roles=ps:1:1:all:no,worker:1:3:one:yes / "
        "registered.n3+0.0677 leave n3 / registered.n1+0.0015 leave n1 / start+2.4166 start n3",
    ),
    Mutant(
        "roles-first-gives: the role declared first gives up a node, not the last",
        Edit("rendezvous/roles.py", "reversed(roles)", "roles"),
        "the last role gives a node first",
        "seed 200 / job nodes=4 roles=chief:1:1:one:yes,worker:1:2:one:yes,evaluator:0:1:one:no / elected.1+1 kill n1",
    ),
    Mutant(
        "roles-all-count: the job waits for roles that do not count",
        alter_arguments(
            SURVEY,
            policy=replace_fields(roles=alter_each(replace_fields(counts=True))),
        ),
        "every agent ends",
        "seed 0 / "
        "job nodes=4 settle=2 interval=0 ttl=8 shutdown=1 "
        "roles=chief:1:1:one:yes,worker:1:2:one:yes,evaluator:0:1:one:no",
    ),
    Mutant(
        "roles-one-counts: the job is done when its last role is",
        alter_arguments(
            SURVEY,
            policy=replace_fields(roles=lambda roles: [replace(role, counts=role == roles[-1]) for role in roles]),
        ),
        "every agent ends",
        "seed 0 / job nodes=4 roles=chief:1:1:one:yes,worker:1:2:one:yes,evaluator:0:1:one:no",
    ),
    Mutant(
        "on-loss-ignored: a loss that concerns all restarts one node alone",
        alter_arguments(
            DECIDE,
            policy=replace_fields(roles=alter_each(replace_fields(on_loss="one"))),
        ),
        "a loss that concerns all restarts all",
        "seed 23 / job nodes=4 last_call=0 join=15 recovery=15 roles=ps:1:1:all:no,worker:1:2:all:yes / "
        "started.1+0.0232 kill n1",
    ),
    Mutant(
        "on-loss-all: a loss restarts all where one node is to restart alone",
        alter_arguments(
            DECIDE,
            policy=replace_fields(roles=alter_each(replace_fields(on_loss="all"))),
        ),
        "one restarts alone",
        "seed 8 / job nodes=5 roles=ps:1:1:all:no,worker:1:3:one:yes / running.1+0 kill n1",
    ),
    Mutant(
        "untouched-moved: workers continue although their ranks have changed",
        Edit(
            "rendezvous/ranks.py::places",
            "workers.place or NodeRanks(group_rank, first_rank, role_ends.get(workers.role, 0))",
            "NodeRanks(group_rank, first_rank, role_ends.get(workers.role, 0))",
        ),
        "workers that continue keep their ranks",
        "seed 1 / job data=ack roles=chief:1:1:one:yes,worker:1:3:one:yes typed=worker,,chief, / leased.1+0 kill n1",
    ),
    Mutant(
        "free-rank: a node that comes gets rank 0, whoever has it",
        Edit(
            "rendezvous/ranks.py",
            """
            if start + count <= each.start: ...
            start = max(start, each.stop)
            """,
            "pass",
        ),
        "no rank is two workers'",
        "seed 1 / job data=ack shard=1 roles=chief:1:1:one:yes,worker:1:3:one:yes / leased.1+0 kill n1 / "
        "leased.7+0 start n1",
    ),
    Mutant(
        "alone-all: a node that comes or goes alone restarts the others",
        Edit(
            "rendezvous/roles.py::continue_alone",
            "return tuple(a for a, b in kept), tuple(d for c, d in kept), tuple(stay)",
            "return tuple(a for a, b in kept), tuple(d for c, d in kept), ()",
        ),
        "one restarts alone",
        "seed 1 / job data=ack roles=chief:1:1:one:yes,worker:1:3:one:yes / leased.1+0 kill n1",
    ),
    Mutant(
        "known-since: an agent tells workers that continue that their round is over",
        Edit("elastic_agent/master_client.py::Link.ask", "0 < mine.since <= request.round", "mine.since < 0"),
        "only workers of an old round are told so",
        "seed 1 / job data=ack roles=chief:1:1:one:yes,worker:1:3:one:yes / leased.1+0 kill n1",
    ),
    Mutant(
        "survivors-leases: a round returns what all workers have",
        Edit("master/data/ledger.py::Ledger.turn", "one.round < since.get(one.rank, number)", "True"),
        "a worker that continues keeps its shards",
        "seed 1 / job data=ack roles=chief:1:1:one:yes,worker:1:3:one:yes / leased.1+0 kill n1",
    ),
    Mutant(
        "lost-leases: a lost worker keeps what it has",
        Edit("master/data/ledger.py::Ledger.turn", "one.round < since.get(one.rank, number)", "False"),
        "what a lost worker had comes back",
        "seed 28 / job data=ack epochs=2 / leased.9+0 kill n1",
    ),
    Mutant(
        "heir: a worker has what the one before it had",
        Edit(
            "master/data/ledger.py::Ledger.turn",
            "self._lose([one for one in self._all if since is None or one.round < since.get(one.rank, number)])",
            """
            for one in self._all:
                if since is None or one.round < since.get(one.rank, number):
                    one.round, one.sequence, one.answer = number, 0, None
            """,
        ),
        "a worker has no shard that it was not given",
        "seed 8 / job data=ack shard=1 / leased.15+0 kill n1",
    ),
    Mutant(
        "another-runs-leases: workers of an earlier run continue in this one",
        Edit("master/data/ledger.py::Ledger.turn", "since is None or ...", "since is not None and ..."),
        "what a lost worker had comes back",
        "seed 549 / job work=4 restarts=1 data=ack shard=1 epochs=2 roles=worker:1:3:one:yes / running.1+6 start n1 / "
        "started.2+0 worker n1 0 exit3 / leased.16+0 worker n1 0 killed",
    ),
    Mutant(
        "told-again: the failure of a worker that continues counts twice",
        Edit("master/machine/faults.py", "member.incarnation not in current.continuing", "True"),
        "only failures are counted as failures",
        "seed 222 / job nodes=4 nproc=2 last_call=0 interval=0 data=ack roles=chief:1:1:one:yes,worker:1:3:one:yes / "
        "leased.2+0.2 worker n1 0 segv",
    ),
    Mutant(
        "untouched-port: a round in which workers continue has another place to meet",
        alter_effect(
            effects.Publish,
            lambda wanted, _: replace_fields(
                header=replace_fields(master_port=lambda port: port + any(one.since for one in wanted.assignments))
            )(wanted),
        ),
        "workers that continue have a place to meet",
        "seed 8 / job nodes=5 roles=ps:1:1:all:no,worker:1:3:one:yes / running.1+0.1812 kill n1",
    ),
    Mutant(
        "untouched-restarted: an agent restarts workers that are to go on",
        alter_arguments(ACT, state=replace_fields(known=replace_fields(assignment=replace_fields(since=0)))),
        "a node that continues keeps its workers",
        "seed 8 / job nodes=5 roles=ps:1:1:all:no,worker:1:3:one:yes / running.1+0.1812 kill n1",
    ),
    Mutant(
        "untouched-forgets: who has succeeded has not when the others continue into another round",
        Edit(
            "elastic_agent/workers/worker_group.py::WorkerGroup.adopt",
            "self._exits.earlier = ended",
            "self._exits.earlier = ()",
        ),
        "after the faults a job trains again",
        "seed 68 / job nodes=4 work=2 ttl=8 shutdown=1 etcd=1 roles=ps:1:1:all:no,worker:1:3:one:yes / "
        "assigned.1+0.0033 start n3 / registered.n3+0.0015 kill n3",
    ),
    Mutant(
        "role-name: workers have the launcher's role, not the assigned one",
        Seam(
            "adapters.environment.WorkerSettings.environment",
            lambda real, settings, round, worker, *rest: real(
                settings, round, replace(worker, role=settings.role), *rest
            ),
        ),
        "workers are told what the header says",
        "seed 0 / job roles=chief:1:1:one:yes,worker:1:2:one:yes,evaluator:0:1:one:no",
    ),
    Mutant(
        "targets-stay: a job that is over still wants nodes",
        alter_arguments(TARGETS, ended=lambda ended: None),
        "a job that is over wants no nodes",
        "seed 0 / job",
    ),
    Mutant(
        "targets-unsaid: the end of the job does not change what it wants",
        alter_effect(Targets, lambda wanted, controller: None if controller.phase == "ended" else wanted),
        "a job that is over wants no nodes",
        "seed 0 / job",
    ),
    Mutant(
        "targets-beyond: a job wants one node more than it may have",
        alter_answer(
            TARGETS,
            alter_each(lambda one: replace(one, count=one.count + isinstance(one.reason, MayHave))),
        ),
        "a job wants no more than it may have",
        "seed 0 / job",
    ),
    Mutant(
        "targets-least: a job wants its minimum, and never grows",
        alter_answer(
            TARGETS,
            alter_each(lambda one: replace(one, count=one.reason.least) if isinstance(one.reason, MayHave) else one),
        ),
        "a job wants what it may have",
        "seed 2 / job",
    ),
    Mutant(
        "targets-never: a job that keeps its size wants more nodes",
        alter_arguments(TARGETS, policy=replace_fields(scale_up="now")),
        "a job wants what it may have",
        "seed 9 / job scale_up=never last_call=0",
    ),
    Mutant(
        "targets-done: a job wants no other node as soon as it trains",
        alter_arguments(TARGETS, finishing=lambda finishing: True),
        "a job wants what it may have",
        "seed 2 / job nodes=1 min=1",
    ),
    Mutant(
        "targets-first: a job says what it wants once, and not when that changes",
        alter_effect(Targets, keep_first),
        "a job that is over wants no nodes",
        "seed 0 / job",
    ),
    Mutant(
        "targets-unfenced: who has led before writes what the job wants",
        lose_compare("leader", lambda compares, operations: "targets" in folders_of(operations)),
        "a deposed master changes nothing",
        "seed 1 / job masters=1 / elected.1+0.005 freeze c1 20",
    ),
    Mutant(
        "targets-kept: a new master leaves what an earlier one has written",
        Seam("master.machine.controller.Controller.on", keep_earlier),
        "a job that is over wants no nodes",
        "seed 1 / job masters=1 / running.1+1 kill c1",
    ),
    Mutant(
        "targets-deaf: a node manager reads once what is wanted",
        Seam("rendezvous.store.waits.Waits.follow_key", read_once),
        "a node manager follows what the leader writes",
        "seed 0 / job nodes=2 scale_up=never last_call=0 masters=1",
    ),
    Mutant(
        "targets-early: nodes are started before a leader wants them",
        Seam("launcher.cluster.managed_nodes.wanted", start_most),
        "a node is started because the leader wants it",
        "seed 1 / job masters=1",
    ),
    Mutant(
        "targets-left: the end leaves in the store what the job wants",
        lose_operation(Delete, "targets"),
        "no key is left",
        "seed 0 / job",
    ),
    Mutant(
        "targets-units: a job wants nodes that make no whole unit",
        Edit("master/machine/targets.py::targets", "policy.usable(policy.max_nodes)", "policy.max_nodes"),
        "a job wants no more than it may have",
        "seed 0 / job nodes=3 max=3 unit=2",
    ),
    Mutant(
        "master-incarnation: a master without workers keeps its incarnation under another lease",
        Edit(
            "elastic_agent/master_process.py::MasterProcess",
            """
            await self._listener.greet_as(secrets.token_hex(8))
            me = Leader(self._setup.name, self._listener.incarnation, self._listener.address)
            """,
            "me = Leader(self._setup.name, self._listener.incarnation, self._listener.address)",
        ),
        "another lease has another incarnation",
        "seed 95 / job nodes=1 ttl=3 masters=1 / registered.n1+0.5 etcd_freeze m2 1.917 / "
        "registered.n1+0.5 kill n1 / registered.n1+0.6 etcd_stop 2 1.107",
    ),
    Mutant(
        "master-keeps: a master without workers that is told to end leaves its leadership to its lease",
        Edit("elastic_agent/master_process.py::MasterProcess", "await self._give_up(leadership, lease)", "pass"),
        "a master that ends gives its leadership up",
        "seed 241 / job masters=1 / elected.1+0 leave c1",
    ),
    Mutant(
        "master-lease: a master without workers ends when its lease has ended",
        Edit(
            "elastic_agent/master_process.py::MasterProcess",
            """
            with contextlib.suppress(LeaseLost):
                keeping.result()
            """,
            'return (plan.STORE_LOST, "its lease has ended")',
        ),
        "an exit code says what happened",
        "seed 1 / job masters=1 / elected.1+0 pause c1 6.459",
    ),
    Mutant(
        "master-stale: a master without workers takes the end of an earlier run for its own",
        Edit("elastic_agent/master_process.py::MasterProcess.run", "self._stale = header.run", "pass"),
        "an exit code says what happened",
        "seed 0 / job nodes=1 min=1 max=1 restarts=0 masters=1 / start+0.5 kill c1 / "
        "running.1+0.5 worker n1 0 exit3 / round.2+0 kill n1 / round.2+8 start c1 / round.2+9 start n1",
    ),
    Mutant(
        "master-again: a master without workers that is elected when the job is over begins it again",
        Edit(
            "rendezvous/election.py::campaign",
            "compares = [Compare(keys.leader, 0), over]",
            "compares = [Compare(keys.leader, 0)]",
        ),
        "a master without workers costs no worker",
        "seed 140 / job ttl=8 etcd=1 data=checkpoint records=6 shard=1 every=1 masters=1 / "
        "round.1+0 freeze c1 10.756 / elected.1+0.0063 pause c1 2.839",
    ),
    Mutant(
        "master-first: a master without workers ends before the job's keys are removed",
        Edit(
            "elastic_agent/master_process.py::MasterProcess",
            "await asyncio.wait({campaign, self._told}, timeout=limit, return_when=asyncio.FIRST_COMPLETED)",
            "pass",
        ),
        "a job that is over wants no nodes",
        "seed 29 / job nodes=2 work=6 masters=2",
    ),
    Mutant(
        "master-unwatched: nobody can tell whether a master without workers is dead",
        Edit("elastic_agent/master_process.py::MasterProcess", "self._listener.address", '""'),
        "a dead master is followed at once",
        "seed 29 / job inplace=1 masters=2 / running.1+0 kill c1",
    ),
    Mutant(
        "service-dies: the death of a service is not told",
        alter_answer("simulation.services.SimulatedServices.failure", lambda why: ""),
        "what ends a round is answered at once",
        "seed 45 / job services=tracker:job:first / running.1+1 service n1 tracker exit3",
    ),
    Mutant(
        "service-everywhere: a service for the node of rank 0 runs on every node",
        alter_arguments("adapters.services.wanted", first=lambda first: True),
        "a service runs where it is wanted",
        "seed 0 / job services=tracker:round:first,watch:job:every",
    ),
    Mutant(
        "service-unready: workers start while their services are not ready",
        lose_call("simulation.services.SimulatedServices.ready"),
        "services are ready before workers start",
        "seed 0 / job services=tracker:round:first,watch:job:every",
    ),
    Mutant(
        "service-late-start: workers start in a round that was over while they waited for their services",
        Edit(
            "elastic_agent/workers/worker_group.py::WorkerGroup",
            """
            self._inbox.note(ServicesAwaited(over=True))
            return await self._confirms(entry.header)
            """,
            """
            self._inbox.note(ServicesAwaited(over=True))
            return True
            """,
        ),
        "the header is read again just before workers start",
        "seed 2 / job services=tracker:round:first,watch:job:every",
    ),
    Mutant(
        "service-awaited: workers wait for services that are ready only when a lost node's are",
        Edit(
            "elastic_agent/machine/plan.py::is_overtaken",
            "state.known.header != action.header",
            "False",
        ),
        "no node waits for a service of a round that is over",
        "seed 503 / job services=crew:round:every ports=1 / assigned.1+0 taken_port n1",
    ),
    Mutant(
        "service-stays: a service of a round runs on while its job waits for nodes",
        lose_call("simulation.services.SimulatedServices.end", lambda _, lifetimes, grace: lifetimes == ("round",)),
        "a service of a round ends with it",
        "seed 229 / job min=3 services=watch:round:every / running.1+0 service n2 watch exit3 / round.2+0 leave n2",
    ),
    Mutant(
        "service-lingers: a service of a round runs on where all its workers had died by themselves",
        alter_arguments(ACT, state=replace_fields(workers=replace_fields(lingers=False))),
        "ports that no worker needs are held",
        "seed 2 / job min=3 ttl=8 services=watch:job:every ports=1 / round.1+0.02 service n2 watch killed / "
        "round.1+2 service n3 watch exit3 / start+7 leave n2",
    ),
    Mutant(
        "service-outlives: a service lives longer than its agent",
        lose_call("simulation.services.SimulatedServices.end", lambda _, lifetimes, grace: "job" in lifetimes),
        "no service outlives its agent",
        "seed 0 / job services=tracker:round:first,watch:job:every",
    ),
    Mutant(
        "service-untold: a service is not told of a round into which its workers continue",
        lose_call(
            "simulation.services.SimulatedServices.tell",
            lambda services, line: all(one.told for one in services.running),
        ),
        "services are ready before workers start",
        "seed 8 / job nodes=5 roles=ps:1:1:all:no,worker:1:3:one:yes services=tracker:round:first / "
        "running.1+0 kill n1",
    ),
    Mutant(
        "service-old-peers: a service is told of the workers of the round before",
        Edit(
            "elastic_agent/workers/worker_group.py::WorkerGroup",
            "if each := self._setup.workers.adapter.worker_ports: ...",
            "if (each := self._setup.workers.adapter.worker_ports) and not self.processes.alive: ...",
        ),
        "workers of a round know the same peers",
        "seed 8 / job nodes=5 roles=ps:1:1:all:no,worker:1:3:one:yes ports=1 / running.1+0 kill n1",
    ),
    Mutant(
        "service-node-rank: a service is told another node's rank",
        Seam(
            "adapters.services.line",
            lambda real, round, node_rank, *rest: real(round, round.nodes - 1 - node_rank, *rest),
        ),
        "a service is told what the header says",
        "seed 0 / job services=tracker:round:first,watch:job:every",
    ),
    Mutant(
        "service-belongs: while its services begin, a node's workers count as those of the new round",
        Edit(
            "elastic_agent/workers/worker_group.py::WorkerGroup.reform",
            """
            if not await self._serve(entry): ...
            self._belong_to(entry)
            """,
            """
            self._belong_to(entry)
            if not await self._serve(entry): ...
            self._belong_to(entry)
            """,
        ),
        "only what happened is counted",
        "seed 357 / job nodes=1 min=1 nproc=2 inplace=1 services=tracker:round:first / running.1+0 worker n1 1 exit3",
    ),
    Mutant(
        "ports-same: a round's workers have the ports of the round before",
        Edit("rendezvous/peers.py::ports_of", "port_set * size", "0 * port_set"),
        "a round has other ports than the one before",
        "seed 14 / job last_call=0 ports=1",
    ),
    Mutant(
        "ports-kept: the ports of workers are not free when they start",
        Seam("simulation.machine.SimulatedPorts.release", lambda *_: True),
        "a worker's ports are free when it starts",
        "seed 3 / job ports=1",
    ),
    Mutant(
        "ports-free: the ports of workers that have ended are anybody's",
        lose_call("simulation.machine.SimulatedPorts.hold"),
        "ports that no worker needs are held",
        "seed 147 / job min=3 ports=1 / start+7 leave n2",
    ),
    Mutant(
        "ports-neighbour: a worker is told a neighbour's ports",
        Edit(
            "elastic_agent/workers/adapter_round.py", "node.ports[local * each:(local + 1) * each]", "node.ports[:each]"
        ),
        "each worker has ports of its own",
        "seed 15 / job nproc=2 ports=1",
    ),
    Mutant(
        "ports-old: workers are told where those of another round were",
        alter_answer(
            "rendezvous.ranks.assign",
            alter_each(lambda one: replace(one, port_set=(one.port_set + bool(one.since)) % PORT_SETS)),
        ),
        "a worker's ports are free when it starts",
        "seed 8 / job nodes=5 roles=ps:1:1:all:no,worker:1:3:one:yes ports=1 / running.1+0 kill n1",
    ),
    Mutant(
        "ports-after-one: which ports workers get goes by the round's number, also where the ones before them ran "
        "for several rounds",
        alter_answer(
            "rendezvous.ranks.assign",
            alter_each(lambda one: one if one.since else replace(one, port_set=(one.round + 1) % PORT_SETS)),
        ),
        "a round has other ports than the one before",
        "seed 0 / job nodes=5 work=20 roles=ps:1:1:all:no,worker:1:3:one:yes ports=1 / running.1+0 kill n1 / "
        "running.2+1 worker n3 0 raise",
    ),
    Mutant(
        "ports-registered-again: a node that has registered again gives its workers the ports of those before them",
        Edit(
            "rendezvous/ranks.py::assign",
            "last.get(member.incarnation, last.get(member.agent_address))",
            "last.get(member.incarnation)",
        ),
        "a round has other ports than the one before",
        "seed 5 / job min=1 nproc=2 work=4 restarts=1 last_call=2 join=15 shutdown=1 ports=2 / "
        "start+2.6671 cut n3 n2 7.034 / start+2.8183 reset n3 n1 6.053 / start+3.5831 kill n1 / "
        "elected.2+0.0443 kill n2 / elected.2+0.0589 start n2",
    ),
)


def row(mutant: Mutant) -> str:
    """As `docs/simulator.md` lists it."""
    return f"| {mutant.title} | {mutant.rule} |"


def find_schedule(mutant: Mutant, schedules: Iterable[str | int], *, shrunk: bool = False) -> Catch | None:
    """The first of `schedules` that finds the defect, or why it cannot be planted any more."""
    try:
        return catch_defect(mutant.defect.plant, schedules, shrunk=shrunk)
    except Outdated as error:
        return Catch("", "the defect can be planted", str(error))


def _search_seeds(mutant: Mutant, words: str) -> int:
    kind, first, last = ["plain", *words.split(":")][-3:]
    found = find_schedule(mutant, [f"{kind} {seed}" for seed in range(int(first), int(last))], shrunk=True)
    if found is None:
        print(f"{mutant.name}: no seed of {words} finds it")
        return 1
    print(f"{mutant.name}: {found.rule}\n{found.what}\n\n{found.schedule}")
    return 0


def main() -> int:
    """See the module."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.simulation.mutants",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("names", nargs="*", metavar="NAME")
    parser.add_argument("--search", metavar="[KIND:]FIRST:LAST")
    parser.add_argument("--json", action="store_true", help="for test_mutants.py")
    parser.add_argument("--rows", action="store_true", help="prints the table of docs/simulator.md")
    arguments = parser.parse_args()
    known = {mutant.name: mutant for mutant in MUTANTS}
    if unknown := set(arguments.names) - set(known):
        parser.error(f"there is no {', '.join(sorted(unknown))}; there are {', '.join(known)}")
    chosen = [known[name] for name in arguments.names] or MUTANTS
    if arguments.rows:
        print("\n".join(map(row, chosen)))
        return 0
    for module in ("explore", "kinds"):  # with the product: once, and not in each process
        importlib.import_module(f".{module}", __package__)
    if arguments.search:
        return max(_search_seeds(mutant, arguments.search) for mutant in chosen)
    missed = 0
    for mutant in chosen:
        found = find_schedule(mutant, [mutant.text]) or Catch("", "", "")
        missed += found.rule != mutant.rule
        if arguments.json:
            print(json.dumps({"name": mutant.name, "rule": found.rule, "what": found.what}), flush=True)
        else:
            print(f"{mutant.title}\n    {mutant.schedule}\n    {found.rule or 'NOT SEEN'}: {found.what}")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
