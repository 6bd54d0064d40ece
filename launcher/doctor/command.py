"""The command itself: asks, judges, prints."""

import asyncio
import dataclasses
import json
import sys
from collections.abc import Mapping, Sequence

from ...rendezvous.visible import visible
from ..node_check.alone import alone
from ..node_check.machine import measure, of_figures
from ..options.reach import Reach, parse_reach
from ..store_access import asked_at
from . import facts
from .findings import Deadlines, Finding, of_deadlines, of_machine, of_python, of_stacks, of_store, worst

USAGE = """\
elastic-run doctor [--rdzv-endpoint=HOST:PORT] [--json] [--collective] [flags of the job]

Checks this machine, the store, the workers' Python and the time-outs, and prints what would disturb a job.

  --collective  also try a small collective of two processes, at this machine's address for other machines
  --json        for programs

Give it the job's --rdzv-endpoint, --rdzv-conf, --shutdown-timeout and --etcd-... flags.

Exit code: 0; 1 if something keeps a job from running; 2 for a wrong command.
"""

SIGNS = {"ok": "ok", "note": "note", "problem": "PROBLEM"}


def main(words: Sequence[str], environ: Mapping[str, str]) -> int:
    """Prints the findings, and returns the exit code. Raises UsageError."""
    if {"-h", "--help"} & set(words):
        sys.stdout.write(USAGE)
        return 0
    flags = [word for word in words if word not in ("--json", "--collective")]
    reach = parse_reach(flags, environ, "doctor", ("shutdown-timeout",))
    findings = asyncio.run(_examine(reach, environ, collective="--collective" in words))
    if "--json" in words:
        sys.stdout.write(json.dumps([dataclasses.asdict(each) for each in findings], indent=2) + "\n")
    else:
        width = max(len(each.subject) for each in findings)
        for each in findings:
            sys.stdout.write(f"{SIGNS[each.grade]:<7}  {each.subject:<{width}}  {visible(each.text)}\n")
    return 1 if worst(findings) == "problem" else 0


async def _examine(reach: Reach, environ: Mapping[str, str], *, collective: bool) -> Sequence[Finding]:
    endpoints = asked_at(reach)
    python = await asyncio.to_thread(facts.python, environ)
    seconds, platform = facts.grace(environ)
    timing = reach.timing
    times = Deadlines(
        lease_ttl=timing.lease_ttl,
        shutdown=reach.shutdown_timeout,
        join=timing.join_timeout,
        recovery=timing.recovery_timeout,
        close=timing.close_timeout,
        grace=seconds,
        platform=platform,
    )
    machine = facts.machine(endpoints)
    return (
        *of_machine(machine),
        *of_figures(await measure(endpoints, machine.address, None)),
        *of_store(await facts.store(endpoints, reach.store.credentials, reach.trust)),
        *of_python(python),
        of_stacks(await facts.stacks(python)),
        *(await alone(python, machine.address, environ) if collective else ()),
        *of_deadlines(times, python),
    )
