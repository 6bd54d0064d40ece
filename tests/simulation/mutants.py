"""Deliberate defects of the product, each with a schedule that finds it and the rule that it breaks.

    python -m tests.simulation.mutants                       all of them, each with its schedule
    python -m tests.simulation.mutants --rows                as the rows of docs/simulator.md
    python -m tests.simulation.mutants NAME                  one, with the end of its trace
    python -m tests.simulation.mutants NAME --search 0:4000  the first seed that finds it, and what is left of it
                                                             when all is taken away that need not be there;
                                                             masters:0:400 takes another kind (`kinds.py`)

A defect is a substitution in the source of one module, made while it is imported (`planted.py`). To add one: its name,
what it breaks, the file, the text and what stands there instead; `--search` prints the rest.
"""

import argparse
import json
import sys
from collections.abc import Iterable
from dataclasses import dataclass

from .planted import Catch, caught, source_of


class Outdated(Exception):
    """The text that a defect replaces is not in the source any more, or not once."""


@dataclass(frozen=True, slots=True)
class Mutant:
    """One defect.

    Attributes:
        name: what it is called.
        breaks: what the product does wrong with it, in one sentence.
        file: where, such as `master/master.py`.
        old, new: the text that is there, exactly once, and what stands there instead.
        rule: which rule of `invariants.py` it breaks.
        schedule: one with which it does.
    """

    name: str
    breaks: str
    file: str
    old: str
    new: str
    rule: str
    schedule: str

    @property
    def source(self) -> str:
        """The module with the defect in it. Raises Outdated."""
        source = source_of(self.file)
        if source.count(self.old) != 1:
            raise Outdated(f"{self.name}: {self.file} holds {self.old!r} {source.count(self.old)} times")
        return source.replace(self.old, self.new)


MUTANTS: tuple[Mutant, ...] = (
    Mutant(
        "unfenced-writes",
        "the master's writes no longer compare the leader key",
        "master/publish.py",
        "self.store.txn([self.leadership.fence, *compares], operations",
        "self.store.txn([*compares], operations",
        "a deposed master changes nothing",
        """\
seed 2
job nodes=1 min=1
running.1+0      freeze n1 13.075
""",
    ),
    Mutant(
        "tombstone",
        "a success leaves no tombstone",
        "master/publish.py",
        "            operations.append(Put(self.keys.outcome, value, tombstone))\n",
        "            pass\n",
        "a success leaves a tombstone",
        """\
seed 0
job
""",
    ),
    Mutant(
        "clean-up-assignments",
        "the end leaves the assignments in the store",
        "master/publish.py",
        "                Delete(self.keys.assignments, prefix=True),\n",
        "",
        "no key is left",
        """\
seed 0
job
""",
    ),
    Mutant(
        "header-first",
        "the header is written before the assignments that it names",
        "master/publish.py",
        "        for start in range(0, len(assignments), BATCH):",
        ("        await self.put_header(header)\n        for start in range(0, len(assignments), BATCH):"),
        "a header names what is there",
        """\
seed 0
job
""",
    ),
    Mutant(
        "evict-by-key",
        "an eviction compares no create revision",
        "master/publish.py",
        "self._txn([Compare(key, create_revision)], [Delete(key)",
        "self._txn([], [Delete(key)",
        "only its own node or the master removes a member",
        """\
seed 5
job min=1 work=6
running.1+1      kill n2
running.1+1.319  start n2
running.1+0.9    etcd_forget_answers 50 3
""",
    ),
    Mutant(
        "abandoned-none",
        "assignments that no header names stay in the store",
        "master/publish.py",
        "sorted(prefixes - {keep})",
        'sorted(prefixes & {""})',
        "assignments that no header names do not stay",
        """\
seed 204
job nodes=4
assigned.1+0     kill n4
""",
    ),
    Mutant(
        "old-successes",
        "a new round leaves the successes of the one before",
        "master/publish.py",
        "            operations.append(Delete(self.keys.successes, prefix=True))\n",
        "            pass\n",
        "a round begins without the successes of another",
        """\
seed 44
job
finishing.1+0    freeze n1 30.720
""",
    ),
    Mutant(
        "no-second-look",
        "reports that came while a header was on its way are not looked at again",
        "master/controller.py",
        (
            "was not yet about the current one.\n"
            "        for seen in self._members.values():\n"
            "            self._gather(seen.member)\n"
        ),
        "was not yet about the current one.\n",
        "what ends a round is answered at once",
        """\
seed 4
job nodes=2 min=1 work=4
start+0          failed_start n1 1
assigned.1+0.0024 etcd_forget_answers 50 1
""",
    ),
    Mutant(
        "members-watch-late",
        "a new master's watch of the members begins one revision too late",
        "master/master.py",
        "self._follow(revision + 1)",
        "self._follow(revision + 2)",
        "a job times out when nodes are missing",
        """\
seed 10
job min=3
""",
    ),
    Mutant(
        "compacted-gone",
        "who has gone while the master's watch was cut stays a member where the history is lost",
        "master/master.py",
        "                        self._tell(events.Unregistered(node))\n                    for item",
        "                        pass\n                    for item",
        "after the faults a job trains again",
        """\
seed 1
job nodes=1 ttl=8 min=1 work=20 interval=0
start+0.5        start n2
start+0.5        start n3
running.1+0      power_off n3
running.1+4.5    cut n1 m1 5
running.1+4.5    cut n1 m2 5
running.1+4.5    cut n1 m3 5
running.1+9.2    start n4
running.1+9.4    etcd_compact
""",
    ),
    Mutant(
        "compacted-reborn",
        "where the history is lost, the next life of a node hides the loss of the one before",
        "master/controller.py",
        "            self._lose(self._members.pop(node))\n            before = None\n",
        "            pass\n",
        "a round says why it was opened",
        """\
seed 1
job nodes=1 ttl=8 min=1 work=20 interval=0
start+0.5        start n2
running.1+0.1    cut n1 n2 12
running.1+0.2    power_off n2
running.1+4.5    cut n1 m1 5
running.1+4.5    cut n1 m2 5
running.1+4.5    cut n1 m3 5
running.1+9.1    start n2
running.1+9.45   etcd_compact
""",
    ),
    Mutant(
        "gone-success",
        "a node that has succeeded and left is taken for lost",
        "master/controller.py",
        ('if report.state == "succeeded" and report.round == self._round.number:\n            self._members['),
        ("if False:\n            self._members["),
        "a node that has succeeded and left is not lost",
        """\
seed 195
job min=1 work=3
running.1+1      worker n1 0 exit0
running.1+1.0123 leave n1
""",
    ),
    Mutant(
        "takeover-incident",
        "a new master forgets the incident that is still open",
        "master/controller.py",
        "IncidentLog(header.tally, header.incident)",
        "IncidentLog(header.tally)",
        "each incident is counted once",
        """\
seed 270
job
running.1+0      leave n1
running.1+5      start n1
""",
    ),
    Mutant(
        "takeover-lost",
        "a new master does not ask who is missing",
        "master/controller.py",
        "if assignment.incarnation not in present and self._round.running:",
        "if False:",
        "a round says why it was opened",
        """\
seed 31
job
start+3          kill n3
""",
    ),
    Mutant(
        "takeover-successes",
        "a new master does not ask who has succeeded and gone",
        "master/controller.py",
        "        for success in self._found.successes:\n",
        "        for success in ():\n",
        "a success stays one",
        """\
seed 20
job nodes=2 min=1 work=4
finishing.1+0.4  kill n1
""",
    ),
    Mutant(
        "takeover-afresh",
        "a new master begins another run where one member is lost",
        "master/controller.py",
        "return not returned and not present.intersection(known)",
        "return not present.issuperset(known)",
        "a run continues while a member of it lives",
        """\
seed 34
job nodes=4 min=4 max=4
round.1+0        leave n1
""",
    ),
    Mutant(
        "stopped-exits",
        "workers that were told to stop are taken for failed",
        "master/controller.py",
        "if not exit_.ok and not exit_.stopped and exit_.round in (",
        "if not exit_.ok and exit_.round in (",
        "the root cause is what was done",
        """\
seed 1
job work=5
running.1+1      worker n1 0 raise
""",
    ),
    Mutant(
        "late-cause",
        "a root cause that arrives after the round was opened changes nothing",
        "master/incident_log.py",
        "            self.pending = self.verdict(number)  # provisional",
        "            pass  # provisional",
        "the root cause is what was done",
        """\
seed 29
job work=5
running.1+1      worker n1 0 raise
""",
    ),
    Mutant(
        "late-for-ever",
        "what arrives long after its round was closed still changes the verdict",
        "master/incident_log.py",
        "if not self._gathers(number, now):",
        "if number not in self._cases:",
        "the root cause is what was done",
        """\
seed 6
job nodes=1 min=1 restarts=5 work=30
start+0.5        start n2
start+0.5        start n3
running.1+0.9    cut n3 * 4
running.1+1      worker n2 0 exit3
running.1+3      worker n3 0 segv
running.2+1      worker n2 0 exit3
""",
    ),
    Mutant(
        "charged-twice",
        "an incident is charged with its round and again with the next",
        "master/incident_log.py",
        "        self.tally, self.pending = tally, because\n",
        "        self.tally, self.pending = charge(tally, because), because\n",
        "only what happened is counted",
        """\
seed 8
job
running.1+0      kill n1
""",
    ),
    Mutant(
        "peers-errors",
        "an error that speaks of a lost peer is as good a cause as any",
        "master/incident.py",
        "        return _COUPLED_KIND\n",
        "        return 1\n",
        "the root cause is what was done",
        """\
seed 1
job work=5 restarts=0
running.1+1      worker n1 0 raise
""",
    ),
    Mutant(
        "peers-unmarked",
        "an agent does not mark what only its framework's adapter takes for a lost peer",
        "elastic_agent/workers/worker_group.py",
        "lost_peer=True",
        "lost_peer=False",
        "the root cause is what was done",
        """\
seed 30
job
running.1+1      worker n1 0 exit3
""",
    ),
    Mutant(
        "blame-first",
        "whoever reports first is to blame",
        "master/incident.py",
        "            if self._root is None or kind < self._root_kind:\n",
        "            if self._root is None:\n",
        "the root cause is what was done",
        """\
seed 1
job work=5 restarts=0
running.1+1      worker n1 0 raise
""",
    ),
    Mutant(
        "segv",
        "a segmentation fault is no crash",
        "master/incident.py",
        "    signal.SIGSEGV,\n",
        "",
        "the root cause is what was done",
        """\
seed 1
job nodes=2 max=2 work=10 restarts=0
running.1+1      worker n1 0 segv
running.1+1.0001 worker n2 0 raise
""",
    ),
    Mutant(
        "budget-more",
        "the budget is one failure too large",
        "master/incident.py",
        "if tally.failures > max_restarts:",
        "if tally.failures > max_restarts + 1:",
        "no round is opened beyond the budget",
        """\
seed 0
job restarts=0
assigned.1+5     worker n2 0 raise
""",
    ),
    Mutant(
        "repeats-more",
        "a failure may be repeated once too often",
        "master/incident.py",
        "tally.repeats >= same_failure_limit",
        "tally.repeats > same_failure_limit",
        "a job is stopped early when it repeats a failure",
        """\
seed 1
job nodes=2 restarts=5 same=2
running.1+1      worker n1 0 exit3
running.2+1      worker n1 0 exit3
running.3+1      worker n1 0 exit3
""",
    ),
    Mutant(
        "repeats-any",
        "any two failures are the same",
        "master/incident.py",
        "if signature and signature == tally.signature else",
        "if signature else",
        "a job is stopped early when it repeats a failure",
        """\
seed 1
job nodes=2 restarts=5 same=2
running.1+1      worker n1 0 exit3
running.2+1      worker n1 0 raise
""",
    ),
    Mutant(
        "problems-for-ever",
        "workers that can never be started are tried for ever",
        "master/incident.py",
        "    if tally.problems_in_row >= MAX_PROBLEMS_IN_ROW:\n",
        "    if False:\n",
        "what cannot be started is not tried for ever",
        """\
seed 1
job nodes=1 min=1 max=1
assigned.1+0     taken_port n1
assigned.2+0     taken_port n1
assigned.3+0     taken_port n1
assigned.4+0     taken_port n1
assigned.5+0     taken_port n1
assigned.6+0     taken_port n1
""",
    ),
    Mutant(
        "hasty-verdict",
        "a verdict that ends the job does not wait for the evidence",
        "rendezvous/round.py",
        "        if now < fault.settled_at:\n",
        "        if False:\n",
        "the root cause is what was done",
        """\
seed 1
job work=5 restarts=0
running.1+1      worker n1 0 raise
""",
    ),
    Mutant(
        "min-less",
        "a round may have one node less than the minimum",
        "rendezvous/round.py",
        "return size if size >= self.min_nodes else 0",
        "return size if size >= self.min_nodes - 1 else 0",
        "a round's size is one that the user allowed",
        """\
seed 6
job min=3
start+0.4        leave n3
""",
    ),
    Mutant(
        "min-more",
        "a round needs one node more than the minimum",
        "rendezvous/round.py",
        "return size if size >= self.min_nodes else 0",
        "return size if size > self.min_nodes else 0",
        "a job wants no nodes when it is over, and not before",
        """\
seed 0
job max=2
""",
    ),
    Mutant(
        "max-more",
        "a round may have one node more than the maximum",
        "rendezvous/round.py",
        "min(nodes, self.max_nodes) // ",
        "min(nodes, self.max_nodes + 1) // ",
        "a round's size is one that the user allowed",
        """\
seed 7
job min=1 max=1
""",
    ),
    Mutant(
        "unit",
        "the node unit is not kept",
        "rendezvous/round.py",
        "// self.node_unit * self.node_unit",
        "// 1",
        "a job wants no more than it may have",
        """\
seed 19
job unit=2
""",
    ),
    Mutant(
        "leaver-in",
        "a node that leaves is taken into the next round",
        "rendezvous/round.py",
        "if seen.member.report.state not in DEPARTING]",
        'if seen.member.report.state != "unfit"]',
        "no leaving node is in a new round",
        """\
seed 38
job
start+5          leave n1
""",
    ),
    Mutant(
        "unfit-in",
        "a node that cannot start workers is taken into the next round",
        "rendezvous/round.py",
        "if seen.member.report.state not in DEPARTING]",
        'if seen.member.report.state != "leaving"]',
        "no leaving node is in a new round",
        """\
seed 6
job nodes=2 min=1
start+0          failed_start n2 3
""",
    ),
    Mutant(
        "loss-called-leaving",
        "where one node is lost as another leaves, the round is said to be for the one that leaves",
        "rendezvous/round.py",
        "    if lost:\n",
        "    if lost and not left:\n",
        "a round says why it was opened",
        """\
seed 7
job nodes=4 min=1 max=4 work=20
running.1+1      leave n2
running.1+1      kill n3
""",
    ),
    Mutant(
        "survivors-order",
        "survivors lose their order",
        "rendezvous/round.py",
        "key=lambda member: rank[member.incarnation],",
        "key=lambda member: member.incarnation,",
        "survivors keep their order",
        """\
seed 6
job
start+0          failed_start n3 1
""",
    ),
    Mutant(
        "join-order",
        "who comes last is taken first",
        "rendezvous/round.py",
        "key=lambda seen: seen.order)",
        "key=lambda seen: -seen.order)",
        "nodes are admitted in order of arrival",
        """\
seed 2
job nodes=1 min=1 max=2 work=20 settle=1
start+1          start n2
start+2          start n3
""",
    ),
    Mutant(
        "one-success",
        "the job is done when one node has succeeded",
        "rendezvous/round.py",
        "current.running and succeeded.issuperset(counting)",
        "current.running and bool(succeeded)",
        "success is when every worker has succeeded",
        """\
seed 0
job max=2
""",
    ),
    Mutant(
        "old-success",
        "the success of an earlier round counts for this one",
        "rendezvous/round.py",
        'return member.report.state == "succeeded" and member.report.round == number',
        'return member.report.state == "succeeded"',
        "success is when every worker has succeeded",
        """\
seed 138
job
finishing.1+0    kill n1
""",
    ),
    Mutant(
        "no-waking",
        "a joining node that has waited long enough is admitted only when something else happens",
        "rendezvous/round.py",
        "        return Keep(ready), reasons.Settling",
        "        return Keep(), reasons.Settling",
        "a node that can be admitted is admitted",
        """\
seed 164
job last_call=0
""",
    ),
    Mutant(
        "settle-for-ever",
        "joining nodes wait until nobody else arrives",
        "rendezvous/round.py",
        "min(arrived + policy.settle, patience)",
        "arrived + policy.settle",
        "a node that can be admitted is admitted",
        """\
seed 1
job nodes=2 min=1 max=12 work=40 settle=2 interval=0
running.1+0.5    start n3
running.1+2      start n4
running.1+3.5    start n5
running.1+5      start n6
running.1+6.5    start n7
running.1+8      start n8
running.1+9.5    start n9
running.1+11     start n10
running.1+12.5   start n11
""",
    ),
    Mutant(
        "settle-alone",
        "who had to wait for others to come leaves those no time to settle",
        "rendezvous/round.py",
        "[need - 1]",
        "[0]",
        "joining nodes restart the script as the user said",
        """\
seed 1
job nodes=2 max=4 unit=2 work=20 settle=2 interval=0
running.1+1      start n3
running.1+9      start n4
""",
    ),
    Mutant(
        "no-interval",
        "joining nodes restart the script as often as they like",
        "rendezvous/round.py",
        ", current.grown_at + policy.scale_up_interval)",
        ", 0.0)",
        "joining nodes restart the script as the user said",
        """\
seed 123
job min=1 last_call=0 settle=0 etcd=1
""",
    ),
    Mutant(
        "scale-up-never",
        "--scale-up=never is not heard",
        "rendezvous/round.py",
        'if policy.scale_up == "never":',
        "if False:",
        "joining nodes restart the script as the user said",
        """\
seed 9
job scale_up=never last_call=0
""",
    ),
    Mutant(
        "late-join",
        "a joining node restarts workers that are finishing",
        "rendezvous/round.py",
        "    if found.finishing:",
        "    if False and found.finishing:",
        "joining nodes do not restart what is finishing",
        """\
seed 1806
job settle=2
round.1+5        kill n2
round.1+5.2      start n2
round.1+5.3      worker n1 0 exit0
""",
    ),
    Mutant(
        "first-rank",
        "ranks do not count the workers of a node",
        "rendezvous/ranks.py",
        "        first_rank += workers.nproc\n",
        "        first_rank += 1\n",
        "ranks are 0..n-1, each once",
        """\
seed 15
job nproc=2
""",
    ),
    Mutant(
        "lease-is-life",
        "a node whose lease has ended ends its workers, and comes as another",
        "elastic_agent/plan.py",
        "    if view.lapsed:\n",
        "    if False:\n",
        "a store that was away costs no worker",
        """\
seed 1
job nodes=2 min=1 max=2 work=30
running.1+1      etcd_stop 3 15
""",
    ),
    Mutant(
        "vanished-is-lost",
        "a master takes a lease that ended while the store was away for the loss of its holder",
        "master/controller.py",
        "not finished and self._was_away():",
        "False:",
        "a store that was away costs no worker",
        """\
seed 650
job last_call=0 ttl=3 data=checkpoint
running.1+0.4    etcd_stop 2 0.762
""",
    ),
    Mutant(
        "missing-is-lost",
        "a new master takes who is missing for lost, although the store was away",
        "master/controller.py",
        "            self._await_missing([",
        "            list([",
        "a store that was away costs no worker",
        """\
seed 1
job nodes=2 min=1 max=2 work=30 etcd=1
running.1+1      etcd_stop 1 15
""",
    ),
    Mutant(
        "young-knows",
        "a new master that could not register while the store was away takes who is missing for lost",
        "elastic_agent/candidate.py",
        "        self._memory = Memory()",
        "        self._memory = Memory(self._now())",
        "a store that was away costs no worker",
        """\
seed 1
job max=2 data=ack
started.1+0.02   etcd_stop 3 6.498
""",
    ),
    Mutant(
        "everybody-young",
        "each new master waits for missing nodes to register again, also where the store was not away",
        "master/controller.py",
        "unknown = self._now - self._memory.began < self._lease_ttl / 2 or",
        "unknown = True or",
        "what ends a round is answered at once",
        """\
seed 7073
job nodes=1 min=1 max=1 etcd=1 guard=0
start+5.7876 kill n1
start+5.79   worker n1 0 killed
start+6.5    start n1
""",
    ),
    Mutant(
        "abandoned-long-ago",
        "a standby that finds a run without any of its nodes counts the wait for the next run from its own start",
        "master/controller.py",
        "self._memory.abandoned.setdefault(header.run, self._now)",
        "self._memory.began",
        "a job times out when its time is over",
        """\
seed 1
job nodes=3 min=2 max=2 work=60 join=20
running.1+23 power_off n3
running.1+25 power_off n2
""",
    ),
    Mutant(
        "back-after-all",
        "a node whose lease has ended takes up its registration in a job that has gone on without it",
        "rendezvous/membership.py",
        '        Compare(keys.round, header_revision, "mod"),\n',
        '        Compare(keys.root, 0, "mod"),\n',
        "a node of a run that has ended begins no other run",
        """\
seed 266
job min=1
registered.n1+0.02 freeze n3 31.667
start+5          etcd_compact
""",
    ),
    Mutant(
        "back-though-left-out",
        "a node whose lease has ended comes back where a round was opened without it while it had workers ready",
        "elastic_agent/plan.py",
        "    if left_out and view.assigned:\n",
        "    if left_out and view.round:\n",
        "the dead do not come back",
        """\
seed 10984
job inplace=1
finishing.1+0    freeze n3 6.292
""",
    ),
    Mutant(
        "back-without-a-header",
        "a node that knows no round takes up its registration, though a run has come and gone",
        "rendezvous/membership.py",
        "    if not header_revision:\n",
        "    if False:\n",
        "a node of a run that has ended begins no other run",
        """\
seed 13210
job min=1
registered.n2+0  pause n2 24.089
""",
    ),
    Mutant(
        "missed-success",
        "a node that heard of no round is refused as if it came late, although it was there before the success",
        "rendezvous/membership.py",
        'own_run in ("", end.run):\n',
        "own_run == end.run:\n",
        "an exit code says what happened",
        """\
seed 13210
job min=1
registered.n2+0  pause n2 24.089
""",
    ),
    Mutant(
        "back-though-evicted",
        "a node that was evicted takes up its registration again",
        "rendezvous/membership.py",
        "        Compare(keys.eviction(member.incarnation), 0),\n",
        "        Compare(keys.root, 0),\n",
        "the dead do not come back",
        """\
seed 428
job max=4 last_call=2 inplace=1
registered.n3+1  reset n2 * 15.153
""",
    ),
    Mutant(
        "abandoned-come-back",
        "who was in a run that another has replaced takes up its registration in that run",
        "master/controller.py",
        "effects.Abandon(() if header.final else tuple(missing), ",
        "effects.Abandon((), ",
        "a run continues while a member of it lives",
        """\
seed 2787
job nodes=2
assigned.1+0.0043 cut n1 * 4.675
assigned.1+0     kill n2
assigned.1+0     start n2
""",
    ),
    Mutant(
        "report-by-key",
        "a report is written without asking whose key it is",
        "rendezvous/membership.py",
        "store.txn([born, last], operations",
        "store.txn([], operations",
        "the dead do not come back",
        """\
seed 6
job min=3 etcd=1
start+0.4        leave n3
""",
    ),
    Mutant(
        "name-taken",
        "a name that another holds is taken from it",
        "rendezvous/membership.py",
        "store.txn([Compare(key, 0), Compare(keys.outcome, 0)], [Put",
        "store.txn([Compare(keys.outcome, 0)], [Put",
        "a name has one owner",
        """\
seed 31
job
registered.n2+0  kill n3
registered.n2+0  start n3
""",
    ),
    Mutant(
        "assignment-of-namesake",
        "a reborn node takes the assignment of the dead one",
        "rendezvous/membership.py",
        "mine = assignment.incarnation == member.incarnation and assignment.round",
        "mine = assignment.round",
        "a reborn agent inherits nothing",
        """\
seed 2
job nodes=1 min=1
running.1+0      freeze n1 13.075
""",
    ),
    Mutant(
        "success-unwritten",
        "a success is reported under the node's lease alone",
        "rendezvous/membership.py",
        "        operations.append(Put(keys.success(member.incarnation), value))\n",
        "        pass\n",
        "a success stays one",
        """\
seed 10
job
finishing.1+0.05 kill n1
""",
    ),
    Mutant(
        "deregister-by-key",
        "a node that leaves removes whoever has its name",
        "rendezvous/membership.py",
        "store.txn([Compare(registration.key, registration.revision)], [Delete",
        "store.txn([], [Delete",
        "only its own node or the master removes a member",
        """\
seed 2
job nodes=2 min=1 last_call=0
running.1+1      leave n1
running.1+1.02   etcd_freeze m3 8
running.1+6      start n1
""",
    ),
    Mutant(
        "depose-namesake",
        "with a dead master, the next life of its node is evicted",
        "rendezvous/election.py",
        "if node is not None and incarnation_of(node.value) == leader.incarnation:",
        "if node is not None:",
        "only its own node or the master removes a member",
        """\
seed 25
job restarts=0
running.1+0.9    freeze n2 5
running.1+1      worker n3 0 exit3
round.2+0.1      kill n1
round.2+0.2      start n1
""",
    ),
    Mutant(
        "watch-repeats",
        "a watch that is resumed tells the last revision again",
        "rendezvous/store/etcd/watch.py",
        "position = revision + 1\n",
        "position = revision\n",
        "a watch tells each change once and in order",
        """\
seed 5
job min=1 max=1
running.1+0      reset n1 m2 7.154
""",
    ),
    Mutant(
        "watch-skips",
        "a message that holds only the first changes is taken for all",
        "rendezvous/store/etcd/watch.py",
        "if not response.events:",
        "if True:",
        "a watch tells each change once and in order",
        """\
seed 10
job nodes=6 max=6
round.1+0        deafen * n1 0.5
round.1+0.615    reset n1 * 0.1
""",
    ),
    Mutant(
        "older-header",
        "an older header that arrives late replaces the newer",
        "elastic_agent/known_round.py",
        "if known.revision > revision:",
        "if False:",
        "only what happened is counted",
        """\
seed 487
job min=1 last_call=0 settle=0 interval=0
round.1+0.3      worker n2 0 raise
started.2+0.5    worker n2 0 exit3
""",
    ),
    Mutant(
        "failed-starts-add-up",
        "starts that failed long ago still count as if they were in a row at a node",
        "elastic_agent/workers/worker_group.py",
        "        self._facts.failed_starts = 0\n",
        "",
        "a node that can start workers stays",
        """\
seed 1
job
assigned.1+0     failed_start n1 1
running.2+1      failed_start n1 1
running.2+1      worker n2 0 raise
""",
    ),
    Mutant(
        "campaign-blind",
        "an election whose answer was lost is taken for won",
        "rendezvous/election.py",
        "        held, revision = listing.items[0], listing.revision\n",
        "        return Leadership(keys.leader, listing.items[0].create_revision)\n",
        "a deposed master changes nothing",
        """\
seed 1
job etcd=1
registered.n1+0  deafen m1 n1 1.123
""",
    ),
    Mutant(
        "depose-again",
        "an agent deposes one master after the other",
        "elastic_agent/candidate.py",
        "                    and self._now() - deposed_at >= election.DEPOSE_PAUSE\n",
        "",
        "no node deposes again and again",
        """\
seed 162
job max=2
assigned.1+0.004 kill n1
start+3          kill n3
""",
    ),
    Mutant(
        "depose-unaware",
        "an agent that lost the answer to its deposition forgets that it may have deposed",
        "elastic_agent/candidate.py",
        "held, leader, why, lease) or doubt",
        "held, leader, why, lease)",
        "no node deposes again and again",
        """\
seed 35
job min=1 work=60 etcd=1
running.1+1      kill n1
running.1+1      etcd_forget_answers 100 1
running.1+6      kill n2
""",
    ),
    Mutant(
        "silence-is-death",
        "a time-out is taken for a refusal",
        "rendezvous/failure_detector.py",
        "        except ConnectionRefusedError:\n",
        "        except OSError:\n",
        "only the dead are evicted",
        """\
seed 1
job work=20
running.1+1      cut n1 n2 25
""",
    ),
    Mutant(
        "never-known",
        "no death is ever proven",
        "rendezvous/failure_detector.py",
        "                known, pauses = True, iter(REDIAL_PAUSES)\n",
        "                known, pauses = False, iter(REDIAL_PAUSES)\n",
        "only failures are counted as failures",
        """\
seed 9
job
round.1+2        kill n3
""",
    ),
    Mutant(
        "no-re-read",
        "workers are started on a header that is not the newest",
        "elastic_agent/node/round_follower.py",
        "if fresh is None or fresh[0] != header:",
        "if fresh is None:",
        "the header is read again just before workers start",
        """\
seed 158
job nproc=2 last_call=0 settle=2
running.1+0 failed_start n3 1
""",
    ),
    Mutant(
        "no-read",
        "the header is not read again before workers start",
        "elastic_agent/node/round_follower.py",
        (
            "fresh = await membership.read_header(self._store, self._keys)\n"
            "        except StoreUnavailable as error:\n"
            '            self._say_once("store", f"cannot start'
        ),
        (
            "fresh = (header, 0)\n"
            "        except StoreUnavailable as error:\n"
            '            self._say_once("store", f"cannot start'
        ),
        "the header is read again just before workers start",
        """\
seed 0
job
""",
    ),
    Mutant(
        "lease-forgotten",
        "nobody renews the lease",
        "elastic_agent/node/registration.py",
        "await self._store.keep_alive(registration.lease, self._setup.lease_ttl)",
        "await asyncio.get_running_loop().create_future()",
        "one member of the store may fail",
        """\
seed 1
job
""",
    ),
    Mutant(
        "old-problem",
        "the problem of one round is reported of the next",
        "elastic_agent/node/round_follower.py",
        ('        if facts.known.revision != revision:\n            facts.problem = ""\n'),
        "",
        "only what happened is counted",
        """\
seed 11
job nodes=1 min=1 last_call=2
elected.1+1      taken_port n1
""",
    ),
    Mutant(
        "stale-end",
        "the end of an earlier run is taken for this one's",
        "elastic_agent/plan.py",
        "(header.final and header.run == view.stale) else header",
        "False else header",
        "an exit code says what happened",
        """\
seed 7
job work=5 restarts=0
running.1+0.9    freeze n2 9
running.1+1      worker n1 0 raise
running.1+3.9857 start n1
running.1+3.7263 start n3
""",
    ),
    Mutant(
        "beside",
        "new workers are started beside the old",
        "elastic_agent/plan.py",
        ("    if view.alive:\n        # A join is planned"),
        ("    if False:\n        # A join is planned"),
        "workers are told before a node joins",
        """\
seed 1
job nodes=1 min=1 max=2 work=10 settle=0 interval=0
running.1+1      start n2
""",
    ),
    Mutant(
        "leaves-unheard",
        "a node's workers are told to go before the store has the news that it leaves",
        "elastic_agent/plan.py",
        "else view.notice_age < NOTICE_PATIENCE\n",
        "else False\n",
        "a node reports that it leaves before its workers end",
        """\
seed 1
job nodes=1 min=1 work=30
start+0.5        start n2
running.1+1      cut n2 m1 0.7
running.1+1      cut n2 m2 0.7
running.1+1      cut n2 m3 0.7
running.1+1      leave n2
""",
    ),
    Mutant(
        "last-master",
        "the last node of a suspended job does not wait for its own master to end it",
        "elastic_agent/plan.py",
        "(counted or last)",
        "counted",
        "no key is left",
        """\
seed 1
job nodes=2 max=2 work=20
running.1+1      leave n1
running.1+8      leave n2
""",
    ),
    Mutant(
        "timeout-code",
        "a timeout ends with the code of a failure",
        "elastic_agent/plan.py",
        "            return TIMEOUT\n",
        "            return FAILED\n",
        "an exit code says what happened",
        """\
seed 18
job min=4 max=4
""",
    ),
    Mutant(
        "store-gone-kills",
        "workers that run are ended when the store does not answer",
        "elastic_agent/plan.py",
        "if view.store_gone and (view.alive == 0 or",
        "if view.store_gone and (True or",
        "workers that run are left alone",
        """\
seed 1
job nodes=2 work=60
running.1+1      etcd_down 30
""",
    ),
    Mutant(
        "suspension-uncharged",
        "a failure is forgotten when the next incident suspends the job",
        "master/controller.py",
        "tally, because = self._incident_log.settled(), self._incident_log.verdict(self._round.number)",
        "tally, because = self._incident_log.tally, self._incident_log.verdict(self._round.number)",
        "each incident is counted once",
        """\
seed 1
job nodes=2 min=2 max=2 work=6 restarts=1
running.1+1 worker n1 0 raise
running.2+2.5 kill n2
running.2+4 start n2
running.4+2 worker n1 0 exit3
""",
    ),
    Mutant(
        "problems-never-reset",
        "starts that failed long ago still count as if they were in a row",
        "master/incident.py",
        "    tally = dataclasses.replace(tally, problems_in_row=0)\n",
        "",
        "a job fails when its budget is spent",
        """\
seed 1
job nodes=1 min=1 max=1 work=6
assigned.1+0 taken_port n1
assigned.2+0 taken_port n1
assigned.3+0 taken_port n1
running.4+1 worker n1 0 raise
assigned.5+0 taken_port n1
assigned.6+0 taken_port n1
""",
    ),
    Mutant(
        "orphan-founds",
        "a node whose run has ended without it begins the job anew",
        "elastic_agent/node/registration.py",
        "if known.own_run and (found is None or found[0].final):",
        "if False:",
        "a node of a run that has ended begins no other run",
        """\
seed 1
job nodes=2 min=1 max=2 restarts=0 ttl=3 work=20
running.1+1 cut n2 * 30
running.2+1 worker n1 0 raise
running.2+20 etcd_compact
""",
    ),
    Mutant(
        "answered-too-soon",
        "the master answers before the ledger is in the store",
        "master/data/ledger_service.py",
        (
            "        for batch in _batches(changed) if changed else [()]:\n"
            "            await self._write_batch(batch)\n"
            "        for waiting in new:\n"
        ),
        (
            "        for waiting, answer in given.items():\n"
            "            waiting.give(answer)\n"
            "        for batch in _batches(changed) if changed else [()]:\n"
            "            await self._write_batch(batch)\n"
            "        for waiting in new:\n"
        ),
        "what a worker is told a successor knows",
        """\
seed 0
job data=checkpoint
""",
    ),
    Mutant(
        "ledger-unseen",
        "a ledger is written whatever was written there meanwhile",
        "master/data/ledger_service.py",
        '[self._leadership.fence, *(Compare(entry.key, entry.revision, "mod") for entry, _ in batch)]',
        "[self._leadership.fence]",
        "a ledger does not go back",
        """\
seed 1
job nodes=1 min=1 nproc=2 work=4 ttl=8 data=ack records=20 shard=1
leased.6+0 etcd_freeze m1 1.5
""",
    ),
    Mutant(
        "ledger-unfenced",
        "a deposed master writes its ledgers",
        "master/data/ledger_service.py",
        '[self._leadership.fence, *(Compare(entry.key, entry.revision, "mod") for entry, _ in batch)]',
        '[*(Compare(entry.key, entry.revision, "mod") for entry, _ in batch)]',
        "a deposed master changes nothing",
        """\
seed 2
job nodes=1 min=1 data=checkpoint
start+2 deafen n1 * 10.871
""",
    ),
    Mutant(
        "answered-unproven",
        "an answer that changes nothing is given without asking who leads",
        "master/data/ledger_service.py",
        "for batch in _batches(changed) if changed else [()]:",
        "for batch in _batches(changed) if changed else []:",
        "a deposed master answers nothing",
        """\
seed 51
job nodes=2 min=1 nproc=4 work=4 ttl=3 data=ack records=20 shard=1
leased.5+0.001 freeze n2 5
""",
    ),
    Mutant(
        "ledger-unread",
        "a new master does not read the ledgers",
        "master/data/ledger_service.py",
        "            self._entries = await self._read(current.run)\n",
        "            self._entries = {}\n",
        "every agent ends",
        """\
seed 2
job min=1 data=checkpoint
leased.2+0 kill n2
""",
    ),
    Mutant(
        "leases-of-another-run",
        "what the workers of another run had is taken for that of this one",
        "master/data/ledger_service.py",
        "        if state.run == run:",
        "        if True:",
        "only workers of an old round are told so",
        """\
seed 1736
job nodes=1 min=1 data=ack
running.1+0.0006 worker n1 0 killed
leased.3+0 leave n1
running.2+2 start n1
""",
    ),
    Mutant(
        "asked-again",
        "a request that is asked again has its effect again",
        "master/data/ledger.py",
        "        if request.sequence == worker.sequence + 1:",
        "        if True:",
        "every record is in the model once",
        """\
seed 4
job min=1 data=checkpoint
leased.7+0 worker n3 0 killed
""",
    ),
    Mutant(
        "leases-forgotten",
        "what the last round's workers had is not leased anew",
        "master/data/ledger.py",
        "                    back[piece.shard_index] = max(at_it, back.get(piece.shard_index, at_it))\n",
        "                    pass\n",
        "a shard is done when its output is written",
        """\
seed 0
job min=1 data=ack
leased.4+0 kill n1
""",
    ),
    Mutant(
        "cut-too-soon",
        "a cut does not wait for all ranks",
        "master/data/ledger.py",
        "        if len(self._votes) < request.world:",
        "        if len(self._votes) < 1:",
        "a position says what the model holds",
        """\
seed 0
job data=checkpoint
""",
    ),
    Mutant(
        "leased-twice",
        "what came back is leased and stays to be leased",
        "master/data/ledger.py",
        "        del self._returned[: len(pieces)]\n",
        "",
        "a shard is leased to one rank",
        """\
seed 0
job min=1 data=checkpoint
leased.7+0 kill n1
""",
    ),
    Mutant(
        "marks-added",
        "marks are counted from what the lease gave",
        "master/data/ledger.py",
        "replace(piece, offset=max(piece.offset, mark.offset))",
        "replace(piece, offset=piece.offset + mark.offset)",
        "a position says what the model holds",
        """\
seed 21
job data=checkpoint shard=5
""",
    ),
    Mutant(
        "cut-without-leases",
        "a cut takes what workers have for done",
        "master/data/ledger.py",
        "            rest.update(worker.leases)\n",
        "            pass\n",
        "a position says what the model holds",
        """\
seed 0
job data=checkpoint
""",
    ),
    Mutant(
        "done-by-both",
        "the slower of two workers is not told that the other has done its shard",
        "master/data/ledger.py",
        "            if other.leases.pop(shard_index, None):\n                other.lost += (shard_index,)\n",
        "            if other.leases.pop(shard_index, None):\n",
        "every shard has one accepted output",
        """\
seed 0
job data=ack
""",
    ),
    Mutant(
        "given-back-lost",
        "what is given back is leased to nobody",
        "master/data/ledger.py",
        "            insort(self._returned, piece)\n",
        "            pass\n",
        "a shard is done when its output is written",
        """\
seed 78
job nodes=2 nproc=2 work=2 data=ack shard=1 epochs=2
leased.8+0       etcd_forget_answers 20 1.935
""",
    ),
    Mutant(
        "origin-ignored",
        "a round begins where the last one was, not at the position that its ranks have restored",
        "master/data/ledger.py",
        "        self._frontier = min(origin.frontier, total)\n",
        "        self._frontier = max(self._state.frontier, min(origin.frontier, total))\n",
        "a position says what the model holds",
        """\
seed 1
job min=1 data=checkpoint
leased.4+0 kill n2
""",
    ),
    Mutant(
        "asked-anew",
        "a request that is sent to another master gets another number",
        "elastic_agent/master_client.py",
        "                self.trouble = str(error)\n",
        (
            "                self.trouble = str(error)\n"
            '                object.__setattr__(request, "sequence", request.sequence + 1)\n'
        ),
        "a valid request is not refused",
        """\
seed 0
job nodes=2 data=ack
started.1+0 reset n1 n2 2.385
""",
    ),
    Mutant(
        "answers-mixed",
        "all requests on a connection have one number",
        "rendezvous/rpc/client.py",
        "        number = next(self._ids)\n",
        "        number = 1\n",
        "what a worker is told a successor knows",
        """\
seed 18
job nproc=2 data=checkpoint
""",
    ),
    Mutant(
        "lost-connection",
        "a lost connection to the master stays in use",
        "rendezvous/rpc/client.py",
        "        self.lost = True\n",
        "",
        "every agent ends",
        """\
seed 1
job min=1 data=checkpoint
leased.4+0 kill n2
""",
    ),
    Mutant(
        "always-current",
        "a worker is told that its round is current without a look",
        "elastic_agent/worker_server.py",
        'if header.number == round and header.state in ("open", "preempted"):',
        "if True:",
        "a round is current when a worker is told so",
        """\
seed 2
job nodes=2 work=0.1 data=checkpoint every=1
running.1+0.21 worker n1 0 killed
""",
    ),
    Mutant(
        "clean-up-ledgers",
        "the end leaves the ledgers in the store",
        "master/publish.py",
        "        ledgers: list[Operation] = [Delete(self.keys.ledgers, prefix=True)]",
        "        ledgers: list[Operation] = []",
        "no key is left",
        """\
seed 0
job data=checkpoint
""",
    ),
    Mutant(
        "drop-late",
        "the removal of an earlier run's data compares no header, so that a late attempt removes live leases",
        "master/publish.py",
        "        await self._fenced(self._data(queues=queues))\n",
        "        await self._txn((), self._data(queues=queues))\n",
        "a valid request is not refused",
        """\
seed 34
job nodes=1 min=1 max=1 ttl=3 data=checkpoint
running.1+1      kill n1
running.1+6      start n1
elected.2+3.015  etcd_freeze m3 3
""",
    ),
    Mutant(
        "evidence-quadratic",
        "the master compares each exit with all that it knows, so that its loop stands still when many workers fail",
        "master/incident.py",
        "if failed not in self._exits]",
        "if failed not in list(self._exits)]",
        "one member of the store may fail",
        """\
seed 1
job nodes=24 min=24 max=24 nproc=16 work=3 ttl=3 cost=40
running.1+1      worker n1 0 raise
""",
    ),
    Mutant(
        "drop-queues",
        "the next run removes the queues of one that was broken off",
        "master/controller.py",
        'queues=header.state == "succeeded")',
        "queues=True)",
        "only a success removes a queue",
        """\
seed 38
job min=1 scale_up=never last_call=0 data=ack
start+3 kill n2
""",
    ),
    Mutant(
        "slow-never",
        "nobody is given what a slow worker has",
        "master/data/ledger.py",
        "        for since, rank, piece in self._end.heads:",
        "        for since, rank, piece in ():",
        "every agent ends",
        """\
seed 694
job data=ack
leased.3+0 worker n2 0 exit0
""",
    ),
    Mutant(
        "lowest-step",
        "a new process group continues from the lowest step that one of its ranks has",
        "adapters/client/commits.py",
        "    best = newest(claims)\n    sources",
        "    best = min(claims)\n    sources",
        "no committed step is lost while a worker that has it lives",
        """\
seed 0
job inplace=1
running.1+1      worker n1 0 killed
""",
    ),
    Mutant(
        "any-source",
        "a rank that is a step behind brings its state to others, and keeps it",
        "adapters/client/commits.py",
        "if claim == best]",
        "if claim.step != NOTHING]",
        "no committed step is lost while a worker that has it lives",
        """\
seed 49
job nodes=4 max=4 inplace=1
committed.1+0    worker n4 0 raise
""",
    ),
    Mutant(
        "suspended-ends",
        "workers that keep their process are ended while the job waits for nodes",
        "elastic_agent/plan.py",
        'if view.alive and view.staying and header.state == "waiting":',
        "if False:",
        "a worker that is free in time keeps its process",
        """\
seed 0
job min=3 inplace=1
running.1+1      kill n2
""",
    ),
    Mutant(
        "forgets-the-end",
        "an agent forgets, when a worker hangs up, that it has trained to the end",
        "elastic_agent/workers/process_groups.py",
        "        if not stayer.done:\n",
        "        if True:\n",
        "joining nodes do not restart what is finishing",
        """\
seed 10104
job min=1 work=2 inplace=1 step=0.7
finishing.1+0    kill n3
start+5          worker n2 0 raise
start+7          kill n2
start+8.06       start n2
""",
    ),
    Mutant(
        "breaks-for-joining-nodes",
        "for a joining node process groups are broken, where they could be left after a step",
        "elastic_agent/plan.py",
        "if planned and _trains(view) and view.waiting < view.alive and patience > 0:",
        "if False:",
        "no worker loses a step for a joining node",
        """\
seed 0
job nodes=2 inplace=1
running.1+1      start n3
""",
    ),
    Mutant(
        "asked-for-ever",
        "a worker that has been given a rank still counts as one that waits for it",
        "elastic_agent/workers/process_groups.py",
        'found.round, found.asked, found.formed, found.why = round, False, False, ""',
        'found.round, found.formed, found.why = round, False, ""',
        "a worker that gets a rank has asked for it",
        """\
seed 1
job nodes=2 inplace=1
running.1+1      start n3
""",
    ),
    Mutant(
        "unready-joining-nodes",
        "in place, a joining node is admitted before its workers are ready",
        "rendezvous/round.py",
        "busy = [seen for seen in newcomers if not seen.member.report.ready and now < until[seen.order]]",
        "busy = [seen for seen in newcomers if now < 0]",
        "no worker waits for a joining node's workers",
        """\
seed 0
job nodes=2 settle=0 interval=0 inplace=1
running.1+1      start n3
""",
    ),
    Mutant(
        "no-time-to-leave",
        "workers that keep their process have no time to leave a process group that was broken",
        "elastic_agent/workers/worker_group.py",
        "            rest = begun + limit - now\n            if late",
        "            rest = 0.0\n            if False",
        "a worker that is free in time keeps its process",
        """\
seed 0
job inplace=1
running.1+1      worker n1 0 killed
""",
    ),
    Mutant(
        "dead-hold-sockets",
        "an agent keeps the sockets of its dead workers open",
        "elastic_agent/workers/process_groups.py",
        "            os.close(descriptor)\n        self._part(found)\n",
        "            os.close(descriptor)\n",
        "every agent ends",
        """\
seed 0
job inplace=1
running.1+1      worker n1 0 exit0
""",
    ),
    Mutant(
        "silent-about-a-broken-group",
        "workers whose process group broke, though nobody is known to be lost, wait for ever",
        "elastic_agent/plan.py",
        "    if view.stranded:\n",
        "    if False:\n",
        "every agent ends",
        """\
seed 0
job inplace=1
running.1+1      worker n1 0 exit0
""",
    ),
    Mutant(
        "unkillable-unnoticed",
        "a node whose worker cannot be killed does not leave for it",
        "elastic_agent/workers/worker_group.py",
        "        if unkillable and not facts.unfit",
        "        if False and not facts.unfit",
        "a node that cannot end its workers leaves",
        """\
seed 2
job nodes=2 min=1 max=2 work=6
running.1+0.5   hold n1 0
running.1+1     worker n2 0 raise
""",
    ),
    Mutant(
        "hasty-writes",
        "an attempt at a write is given up after 2 s also where all members of the store need longer",
        "rendezvous/store/etcd/session.py",
        "Patience(LONGEST_WRITE)",
        "Patience()",
        "an exit code says what happened",
        """\
seed 1
job nodes=2 max=2 write=2.2
""",
    ),
    Mutant(
        "lease-unused",
        "nobody renews a lease while the write that first uses it takes long",
        "elastic_agent/node/registration.py",
        "await self._while_kept(self.unconfirmed, registering)",
        "await registering",
        "one member of the store may fail",
        """\
seed 3
job nodes=2 max=2 write=3
""",
    ),
    Mutant(
        "lease-over-as-granted",
        "a lease whose first attempt was granted long before the first answer is used",
        "rendezvous/store/etcd/etcd_store.py",
        "            if self._session.now() - began < ttl / 2 or await self._renew(lease, until):\n",
        "            if True:\n",
        "an exit code says what happened",
        """\
seed 1
job nodes=2 max=2 write=2.5
""",
    ),
    Mutant(
        "suspended-anew",
        "each new master gives a suspended job its whole time again",
        "master/controller.py",
        'header.state == "open", published, grown_at',
        'header.state == "open", self._now, grown_at',
        "a job times out as soon as its time is over",
        """\
seed 1
job nodes=3 min=3 max=3 work=20 recovery=30
running.1+1     kill n3
running.1+3     freeze n1 7
running.1+12    freeze n2 7
running.1+21    freeze n1 7
running.1+30    freeze n2 7
running.1+39    freeze n1 7
""",
    ),
    Mutant(
        "first-wait-anew",
        "each new master gives the first round its whole time again",
        "master/controller.py",
        "self._round = Round(0, (), False, self._memory.began)",
        "self._round = Round(0, (), False, self._now)",
        "a job times out as soon as its time is over",
        """\
seed 1
job nodes=2 min=3 max=3 work=20 join=30
registered.n2+3     freeze n1 7
registered.n2+12    freeze n2 7
registered.n2+21    freeze n1 7
registered.n2+30    freeze n2 7
registered.n2+39    freeze n1 7
""",
    ),
    Mutant(
        "roles-typed",
        "a typed node is given another role",
        "rendezvous/roles.py",
        "*(each for each in waiting if not each.node_role)",
        "*(each for each in waiting)",
        "a typed node takes its own role only",
        """\
seed 6
job roles=worker:2:3:all:yes,evaluator:0:1:one:yes typed=evaluator,evaluator,evaluator,
""",
    ),
    Mutant(
        "roles-typed-moved",
        "a typed node is moved to another role",
        "rendezvous/roles.py",
        "if member and not member.node_role:",
        "if member:",
        "a typed node takes its own role only",
        """\
seed 25
job nodes=4 join=15 ttl=8 roles=worker:2:3:all:yes,evaluator:0:1:one:yes typed=worker,evaluator,evaluator,worker
assigned.1+0.0053 kill n1
""",
    ),
    Mutant(
        "roles-minimum",
        "a round is opened although a role lacks nodes",
        "rendezvous/round.py",
        "return 0 if filled.missing else len(filled.ranked)",
        "return len(filled.ranked)",
        "a round's size is one that the user allowed",
        """\
seed 3
job nodes=2 interval=8 shutdown=1 etcd=1 roles=ps:1:1:all:no,worker:1:2:all:yes
running.1+0.0122 leave n1
""",
    ),
    Mutant(
        "roles-maximum",
        "a role gets one node more than its maximum",
        "rendezvous/roles.py",
        "role.max_nodes if grow",
        "role.max_nodes + 1 if grow",
        "each role has its nodes",
        """\
seed 0
job roles=chief:1:1:one:yes,worker:1:2:one:yes,evaluator:0:1:one:no
""",
    ),
    Mutant(
        "roles-forgotten",
        "survivors forget their role",
        "rendezvous/round.py",
        "RoleMember(workers.role, members.get(incarnation))",
        "RoleMember(policy.roles[-1].name, members.get(incarnation))",
        "a round's size is one that the user allowed",
        """\
seed 1
job nodes=5 interval=0 roles=ps:1:1:all:no,worker:1:3:one:yes
""",
    ),
    Mutant(
        "roles-no-standby",
        "a node changes its role although a standby is there",
        "rendezvous/round.py",
        "return fill(policy.roles, before, _divide(candidates, current)[1], grow=grow)",
        "return fill(policy.roles, before, _divide(candidates, current)[1] if not current.nodes else (), grow=grow)",
        "a node that can be admitted is admitted",
        """\
seed 21
job nodes=5 nproc=2 work=6 restarts=0 last_call=2 settle=0 ttl=3 shutdown=1 roles=ps:1:1:all:no,worker:1:3:one:yes
registered.n3+0.0677 leave n3
registered.n1+0.0015 leave n1
start+2.4166     start n3
""",
    ),
    Mutant(
        "roles-first-gives",
        "the role declared first gives up a node, not the last",
        "rendezvous/roles.py",
        "for role in reversed(roles):",
        "for role in roles:",
        "the last role gives a node first",
        """\
seed 200
job nodes=4 roles=chief:1:1:one:yes,worker:1:2:one:yes,evaluator:0:1:one:no
elected.1+1      kill n1
""",
    ),
    Mutant(
        "roles-all-count",
        "the job waits for roles that do not count",
        "rendezvous/round.py",
        "{role.name for role in policy.roles if role.counts}",
        "{role.name for role in policy.roles}",
        "every agent ends",
        """\
seed 0
job nodes=4 settle=2 interval=0 ttl=8 shutdown=1 roles=chief:1:1:one:yes,worker:1:2:one:yes,evaluator:0:1:one:no
""",
    ),
    Mutant(
        "roles-one-counts",
        "the job is done when its last role is",
        "rendezvous/round.py",
        "if workers.role in count",
        "if workers.role == policy.roles[-1].name",
        "every agent ends",
        """\
seed 0
job nodes=4 roles=chief:1:1:one:yes,worker:1:2:one:yes,evaluator:0:1:one:no
""",
    ),
    Mutant(
        "on-loss-ignored",
        "a loss that concerns all restarts one node alone",
        "rendezvous/round.py",
        '{role.name for role in policy.roles if role.on_loss == "one"}',
        "{role.name for role in policy.roles}",
        "a loss that concerns all restarts all",
        """\
seed 23
job nodes=4 last_call=0 join=15 recovery=15 roles=ps:1:1:all:no,worker:1:2:all:yes
started.1+0.0232 kill n1
""",
    ),
    Mutant(
        "on-loss-all",
        "a loss restarts all where one node is to restart alone",
        "rendezvous/round.py",
        '{role.name for role in policy.roles if role.on_loss == "one"}',
        "set[str]()",
        "one restarts alone",
        """\
seed 8
job nodes=5 roles=ps:1:1:all:no,worker:1:3:one:yes
running.1+0      kill n1
""",
    ),
    Mutant(
        "untouched-moved",
        "workers continue although their ranks have changed",
        "rendezvous/round.py",
        "if (old, replace(was, world_size=0)) != (new, replace(now, world_size=0)):",
        "if False:",
        "workers that continue keep their ranks",
        """\
seed 16
job last_call=0 roles=chief:1:1:one:yes,worker:1:2:one:yes,evaluator:0:1:one:no
""",
    ),
    Mutant(
        "untouched-port",
        "a round in which workers continue has another place to meet",
        "master/controller.py",
        "if previous and decision.untouched:",
        "if False:",
        "workers that continue have a place to meet",
        """\
seed 8
job nodes=5 roles=ps:1:1:all:no,worker:1:3:one:yes
running.1+0.1812 kill n1
""",
    ),
    Mutant(
        "untouched-restarted",
        "an agent restarts workers that are to go on",
        "elastic_agent/plan.py",
        "if 0 < view.assignment.since <= view.round:",
        "if False:",
        "a node that continues keeps its workers",
        """\
seed 8
job nodes=5 roles=ps:1:1:all:no,worker:1:3:one:yes
running.1+0.1812 kill n1
""",
    ),
    Mutant(
        "untouched-forgets",
        "who has succeeded has not when the others continue into another round",
        "elastic_agent/workers/worker_group.py",
        "self._ended = ended\n",
        "self._ended = ()\n",
        "after the faults a job trains again",
        """\
seed 68
job nodes=4 work=2 ttl=8 shutdown=1 etcd=1 roles=ps:1:1:all:no,worker:1:3:one:yes
assigned.1+0.0033 start n3
registered.n3+0.0015 kill n3
""",
    ),
    Mutant(
        "role-name",
        "workers have the launcher's role, not the assigned one",
        "elastic_agent/workers/worker_group.py",
        "role=assignment.role,\n            role_rank",
        "role=self._setup.workers.role,\n            role_rank",
        "workers are told what the header says",
        """\
seed 0
job roles=chief:1:1:one:yes,worker:1:2:one:yes,evaluator:0:1:one:no
""",
    ),
    Mutant(
        "targets-stay",
        "a job that is over still wants nodes",
        "master/targets.py",
        "    if ended:\n",
        '    if ended == "preempted":\n',
        "a job that is over wants no nodes",
        """\
seed 0
job
""",
    ),
    Mutant(
        "targets-unsaid",
        "the end of the job does not change what it wants",
        "master/controller.py",
        "                self._aim(finishing=True)\n                self._see_off()",
        "                self._see_off()",
        "a job that is over wants no nodes",
        """\
seed 0
job
""",
    ),
    Mutant(
        "targets-beyond",
        "a job wants one node more than it may have",
        "master/targets.py",
        "Target(role, most, MayHave(",
        "Target(role, most + 1, MayHave(",
        "a job wants no more than it may have",
        """\
seed 0
job
""",
    ),
    Mutant(
        "targets-least",
        "a job wants its minimum, and never grows",
        "master/targets.py",
        "Target(role, most, MayHave(",
        "Target(role, least, MayHave(",
        "a job wants what it may have",
        """\
seed 2
job
""",
    ),
    Mutant(
        "targets-never",
        "a job that keeps its size wants more nodes",
        "master/targets.py",
        'if current.running and policy.scale_up == "never":',
        'if current.running and policy.scale_up == "commit":',
        "a job wants what it may have",
        """\
seed 9
job scale_up=never last_call=0
""",
    ),
    Mutant(
        "targets-done",
        "a job wants no other node as soon as it trains",
        "master/targets.py",
        "if current.running and finishing:",
        "if current.running:",
        "a job wants what it may have",
        """\
seed 2
job nodes=1 min=1
""",
    ),
    Mutant(
        "targets-first",
        "a job says what it wants once, and not when that changes",
        "master/controller.py",
        "            if target not in self._targets:\n",
        "            if not self._targets:\n",
        "a job that is over wants no nodes",
        """\
seed 0
job
""",
    ),
    Mutant(
        "targets-units",
        "a job wants nodes that make no whole unit",
        "master/targets.py",
        "policy.usable(policy.max_nodes)",
        "policy.max_nodes",
        "a job wants no more than it may have",
        """\
seed 0
job nodes=3 max=3 unit=2
""",
    ),
    Mutant(
        "master-incarnation",
        "a master without workers keeps its incarnation under another lease",
        "elastic_agent/master_process.py",
        "            await self._listener.greet_as(secrets.token_hex(8))\n",
        "",
        "another lease has another incarnation",
        """\
seed 95
job nodes=1 ttl=3 masters=1
registered.n1+0.5 etcd_freeze m2 1.917
registered.n1+0.5 kill n1
registered.n1+0.6 etcd_stop 2 1.107
""",
    ),
    Mutant(
        "master-keeps",
        "a master without workers that is told to end leaves its leadership to its lease",
        "elastic_agent/master_process.py",
        "                await self._give_up(leadership, lease)\n",
        "                pass\n",
        "a master that ends gives its leadership up",
        """\
seed 241
job masters=1
elected.1+0      leave c1
""",
    ),
    Mutant(
        "master-lease",
        "a master without workers ends when its lease has ended",
        "elastic_agent/master_process.py",
        "                with contextlib.suppress(LeaseLost):\n                    keeping.result()\n",
        "                return plan.STORE_LOST, 'its lease has ended'\n",
        "an exit code says what happened",
        """\
seed 1
job masters=1
elected.1+0      pause c1 6.459
""",
    ),
    Mutant(
        "master-stale",
        "a master without workers takes the end of an earlier run for its own",
        "elastic_agent/master_process.py",
        "                    self._stale = header.run\n",
        "                    pass\n",
        "an exit code says what happened",
        """\
seed 0
job nodes=1 min=1 max=1 restarts=0 masters=1
start+0.5        kill c1
running.1+0.5    worker n1 0 exit3
round.2+0        kill n1
round.2+8        start c1
round.2+9        start n1
""",
    ),
    Mutant(
        "master-again",
        "a master without workers that is elected when the job is over begins it again",
        "elastic_agent/candidate.py",
        "if has_ended and await has_ended():",
        "if has_ended and not has_ended:",
        "a master without workers costs no worker",
        """\
seed 58
job ttl=8 etcd=1 data=checkpoint records=6 shard=1 every=1 masters=1
round.1+0        freeze c1 10.756
elected.1+0.0063 pause c1 2.839
""",
    ),
    Mutant(
        "master-first",
        "a master without workers ends before the job's keys are removed",
        "elastic_agent/master_process.py",
        "            await asyncio.wait({campaign, self._told}, timeout=limit, return_when=asyncio.FIRST_COMPLETED)\n",
        "            pass\n",
        "a job that is over wants no nodes",
        """\
seed 12
job nodes=2 work=6 masters=2
""",
    ),
    Mutant(
        "master-unwatched",
        "nobody can tell whether a master without workers is dead",
        "elastic_agent/master_process.py",
        "Leader(self._setup.name, self._listener.incarnation, self._listener.address)",
        'Leader(self._setup.name, self._listener.incarnation, "")',
        "a dead master is followed at once",
        """\
seed 29
job inplace=1 masters=2
running.1+0      kill c1
""",
    ),
    Mutant(
        "service-dies",
        "the death of a service is not told",
        "elastic_agent/plan.py",
        "    if view.service or any(not exit_.ok",
        "    if any(not exit_.ok",
        "what ends a round is answered at once",
        """\
seed 45
job services=tracker:job:first
running.1+1      service n1 tracker exit3
""",
    ),
    Mutant(
        "service-everywhere",
        "a service for the node of rank 0 runs on every node",
        "adapters/services.py",
        'if first or service.where == "every")',
        "if service)",
        "a service runs where it is wanted",
        """\
seed 0
job services=tracker:round:first,watch:job:every
""",
    ),
    Mutant(
        "service-unready",
        "workers start while their services are not ready",
        "elastic_agent/workers/worker_group.py",
        "await self._unless_superseded(header, self._services.ready()) and await self._confirms(header)",
        "await self._confirms(header)",
        "services are ready before workers start",
        """\
seed 0
job services=tracker:round:first,watch:job:every
""",
    ),
    Mutant(
        "service-late-start",
        "workers start in a round that was over while they waited for their services",
        "elastic_agent/workers/worker_group.py",
        "self._services.ready()) and await self._confirms(header)",
        "self._services.ready())",
        "the header is read again just before workers start",
        """\
seed 2
job services=tracker:round:first,watch:job:every
""",
    ),
    Mutant(
        "service-awaited",
        "workers wait for services that are ready only when a lost node's are",
        "elastic_agent/workers/worker_group.py",
        "                if self._facts.known.header != header:\n",
        "                if not header:\n",
        "no node waits for a service of a round that is over",
        """\
seed 503
job services=crew:round:every ports=1
assigned.1+0     taken_port n1
""",
    ),
    Mutant(
        "service-stays",
        "a service of a round runs on while its job waits for nodes",
        "elastic_agent/workers/worker_group.py",
        '                await self._services.end(("round",), min(grace, GRACE_SECONDS))\n',
        "                pass\n",
        "a service of a round ends with it",
        """\
seed 229
job min=3 services=watch:round:every
running.1+0      service n2 watch exit3
round.2+0        leave n2
""",
    ),
    Mutant(
        "service-lingers",
        "a service of a round runs on where all its workers had died by themselves",
        "elastic_agent/plan.py",
        " or (view.lingers and not view.alive):",
        ":",
        "ports that no worker needs are held",
        """\
seed 147
job min=3 ttl=8 services=watch:job:every ports=1
round.1+0.02     service n2 watch killed
round.1+2        service n3 watch exit3
start+7          leave n2
""",
    ),
    Mutant(
        "service-outlives",
        "a service lives longer than its agent",
        "elastic_agent/workers/worker_group.py",
        '            await self._services.end(("round", "job"), GRACE_SECONDS)\n',
        "            pass\n",
        "no service outlives its agent",
        """\
seed 0
job services=tracker:round:first,watch:job:every
""",
    ),
    Mutant(
        "service-untold",
        "a service is not told of a round into which its workers continue",
        "elastic_agent/workers/worker_group.py",
        "self._services.tell(self._line(self._services.services, self._round(header, assignment), assignment))",
        "pass",
        "services are ready before workers start",
        """\
seed 8
job nodes=5 roles=ps:1:1:all:no,worker:1:3:one:yes services=tracker:round:first
running.1+0      kill n1
""",
    ),
    Mutant(
        "service-old-peers",
        "a service is told of the workers of the round before",
        "elastic_agent/workers/worker_group.py",
        "_is_current(header):\n            return\n        facts = self._facts\n        ended",
        "_confirms(header):\n            return\n        facts = self._facts\n        ended",
        "workers of a round know the same peers",
        """\
seed 8
job nodes=5 roles=ps:1:1:all:no,worker:1:3:one:yes ports=1
running.1+0      kill n1
""",
    ),
    Mutant(
        "service-node-rank",
        "a service is told another node's rank",
        "elastic_agent/workers/worker_group.py",
        "services.line(round, assignment.group_rank, ",
        "services.line(round, assignment.group_size - 1 - assignment.group_rank, ",
        "a service is told what the header says",
        """\
seed 0
job services=tracker:round:first,watch:job:every
""",
    ),
    Mutant(
        "service-belongs",
        "while its services begin, a node's workers count as those of the new round",
        "elastic_agent/workers/worker_group.py",
        """\
            return
        try:
            if not await self._serve(header, assignment):
""",
        """\
            return
        self._belong_to(header, assignment)
        try:
            if not await self._serve(header, assignment):
""",
        "only what happened is counted",
        """\
seed 357
job nodes=1 min=1 nproc=2 inplace=1 services=tracker:round:first
running.1+0      worker n1 1 exit3
""",
    ),
    Mutant(
        "ports-same",
        "a round's workers have the ports of the round before",
        "rendezvous/peers.py",
        "    start = port_set * size\n",
        "    start = 0 * port_set\n",
        "a round has other ports than the one before",
        """\
seed 14
job last_call=0 ports=1
""",
    ),
    Mutant(
        "ports-kept",
        "the ports of workers are not free when they start",
        "elastic_agent/workers/worker_group.py",
        "            if peer.first_rank == assignment.first_rank:",
        "            if peer.first_rank > assignment.world_size:",
        "a worker's ports are free when it starts",
        """\
seed 3
job ports=1
""",
    ),
    Mutant(
        "ports-free",
        "the ports of workers that have ended are anybody's",
        "elastic_agent/workers/worker_group.py",
        "        self.ports.hold()\n        self.worker_ports.hold()\n        self.lingers = False\n",
        "        self.lingers = False\n",
        "ports that no worker needs are held",
        """\
seed 147
job min=3 ports=1
start+7          leave n2
""",
    ),
    Mutant(
        "ports-neighbour",
        "a worker is told a neighbour's ports",
        "elastic_agent/workers/worker_group.py",
        "node.ports[local * each : (local + 1) * each]",
        "node.ports[: each]",
        "each worker has ports of its own",
        """\
seed 15
job nproc=2 ports=1
""",
    ),
    Mutant(
        "ports-old",
        "workers are told where those of another round were",
        "rendezvous/ranks.py",
        "return number if member.incarnation in since else (number + 1) % PORT_SETS",
        "return (number + 1) % PORT_SETS",
        "a worker's ports are free when it starts",
        """\
seed 8
job nodes=5 roles=ps:1:1:all:no,worker:1:3:one:yes ports=1
running.1+0      kill n1
""",
    ),
    Mutant(
        "ports-after-one",
        "which ports workers get goes by the round's number, also where the ones before them ran for several rounds",
        "rendezvous/ranks.py",
        "else (number + 1) % PORT_SETS",
        "else (round_number + 1) % PORT_SETS",
        "a round has other ports than the one before",
        """\
seed 8
job nodes=5 work=20 roles=ps:1:1:all:no,worker:1:3:one:yes ports=1
running.1+0      kill n1
running.2+1      worker n3 0 raise
""",
    ),
    Mutant(
        "ports-registered-again",
        "a node that has registered again gives its workers the ports of those before them",
        "rendezvous/ranks.py",
        "last.get(member.incarnation, last.get(member.agent_address))",
        "last.get(member.incarnation)",
        "a round has other ports than the one before",
        """\
seed 333
job min=1 nproc=2 work=4 restarts=1 last_call=2 join=15 shutdown=1 ports=2
start+2.6671     cut n3 n2 7.034
start+2.8183     reset n3 n1 6.053
start+3.5831     kill n1
elected.2+0.0443 kill n2
elected.2+0.0589 start n2
""",
    ),
)


def row(mutant: Mutant) -> str:
    """As `docs/simulator.md` lists it."""
    lines = (" ".join(line.split()) for line in mutant.schedule.splitlines() if line)
    return f"| {mutant.name}: {mutant.breaks} | {mutant.rule} | `{' / '.join(lines)}` |"


def find(mutant: Mutant, schedules: Iterable[str | int], *, shrunk: bool = False) -> Catch | None:
    """The first of `schedules` that finds the defect."""
    return caught(mutant.file, mutant.source, schedules, shrunk=shrunk)


def _search(mutant: Mutant, words: str) -> int:
    kind, first, last = ["plain", *words.split(":")][-3:]
    found = find(mutant, [f"{kind} {seed}" for seed in range(int(first), int(last))], shrunk=True)
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
    if arguments.search:
        return max(_search(mutant, arguments.search) for mutant in chosen)
    missed = 0
    for mutant in chosen:
        found = find(mutant, [mutant.schedule])
        rule = found.rule if found else ""
        missed += rule != mutant.rule
        if arguments.json:
            print(json.dumps({"name": mutant.name, "rule": rule, "what": found.what if found else ""}), flush=True)
            continue
        print(f"{mutant.name}: {mutant.breaks}\n    {rule or 'NOT SEEN'}" + (f": {found.what}" if found else ""))
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
