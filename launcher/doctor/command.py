"""The command itself: asks, judges, prints."""

import asyncio
import dataclasses
import json
import os
import sys
from collections.abc import Iterator, Mapping, Sequence

from ...rendezvous.base.visible import visible
from ..node_check.alone import alone
from ..node_check.machine import measure, of_figures
from ..options.reach import Reach, parse_reach
from ..store_access import asked_at
from . import facts
from .findings import Finding, of_deadlines, of_machine, of_python, of_stacks, of_store

USAGE = """\
elastic-run doctor [--rdzv-endpoint=HOST:PORT] [--json] [--collective] [flags of the job]

Checks this machine, the store, the workers' Python and the time-outs, and prints what would disturb a job.

  --collective  also try a small collective of two processes, at this machine's address for other machines
  --json        for programs

Give it the job's --rdzv-endpoint, --rdzv-conf, --shutdown-timeout and --etcd-... flags.

Exit code: 0; 1 if something keeps a job from running; 2 for a wrong command.
"""

SIGNS = {"ok": "ok", "note": "note", "problem": "PROBLEM"}
WIDTH = len("workers' Python")  # the longest subject


def main(words: Sequence[str], environ: Mapping[str, str]) -> int:
    """Prints each finding as it is found, and returns the exit code. Raises UsageError."""
    flags = [word for word in words if word not in ("--json", "--collective")]
    reach = parse_reach(flags, environ, "doctor", ("shutdown-timeout",))
    as_json, findings = "--json" in words, list[Finding]()
    for each in _examine(reach, environ, collective="--collective" in words):
        findings.append(each)
        if not as_json:
            _print(f"{SIGNS[each.grade]:<7}  {each.subject:<{WIDTH}}  {visible(each.text)}")
    if as_json:
        _print(json.dumps([dataclasses.asdict(each) for each in findings], indent=2))
    return 1 if any(each.grade == "problem" for each in findings) else 0


def _print(text: str) -> None:
    try:
        print(text, flush=True)
    except BrokenPipeError:  # whoever read, `head` say, has seen enough; the exit code still tells
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _examine(reach: Reach, environ: Mapping[str, str], *, collective: bool) -> Iterator[Finding]:
    endpoints = asked_at(reach)
    machine = facts.machine(endpoints)
    yield from of_machine(machine)
    with asyncio.Runner() as runner:
        yield from of_figures(runner.run(measure(endpoints, machine.address, None)))
        yield from of_store(runner.run(facts.store(endpoints, reach.store.credentials, reach.trust)))
        python = facts.python(environ)
        yield from of_python(python)
        yield of_stacks(runner.run(facts.stacks(python)))
        if collective:
            yield from runner.run(alone(python, machine.address, environ))
    yield from of_deadlines(reach.timing, reach.shutdown_timeout, python, facts.grace(environ))
