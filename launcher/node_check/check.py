"""All checks in order, and what a person reads of them."""

import asyncio
import contextlib
import secrets
import socket
from collections.abc import Callable, Iterable, Mapping, Sequence

from ...rendezvous.failure_detector import listener
from ...rendezvous.store.contract import Store
from ...rendezvous.store.endpoint import Endpoint
from ..address import Address
from ..doctor import facts
from ..doctor.findings import Finding, Python, of_machine, of_python, of_store
from ..settings import Options
from . import collective
from .collective import Place
from .machine import measure, of_figures
from .meeting import Meeting, Present
from .pairs import MARK, TURNS, Outcome
from .versions import differences, versions_of

COMING = 60.0
"""Seconds for the others to come to be checked with, at most."""

TELLING = 30.0
"""Seconds for the others to tell what came of it, once this node has."""

AHEAD = 1.0
"""Seconds that two clocks may differ by without a word."""


async def check(
    options: Options,
    where: Address,
    endpoints: Sequence[Endpoint],
    store: Store,
    environ: Mapping[str, str],
    say: Callable[[str], None],
) -> str:
    """Checks this node, and returns why it is not fit for the job; empty where it is.

    Raises StoreError.
    """
    python = await asyncio.to_thread(facts.python, environ)
    findings = [
        *of_machine(facts.machine(endpoints)),
        *of_python(python),
        *of_figures(await measure(endpoints, where.host, options.output.log_dir)),
    ]
    if options.store.kind != "memory":
        findings += of_store(await facts.store(endpoints, options.store.credentials, options.trust))
    if why := _told(findings, say):
        return why
    if options.nodes.maximum == 1 or options.store.kind == "memory":
        return ""
    if not python.torch:
        say("node check: no collective is tried, since the workers' Python has no torch")
        return ""
    return await _with_others(options, where, store, python, environ, say)


def _told(findings: Iterable[Finding], say: Callable[[str], None]) -> str:
    """Prints what is not as it should be; the sentence of the first problem."""
    fine, problems = 0, list[str]()
    for each in findings:
        fine += each.grade == "ok"
        if each.grade == "note":
            say(f"node check: {each.subject}: {each.text}")
        elif each.grade == "problem":
            problems.append(f"{each.subject}: {each.text}")
    if not problems:
        say(f"node check: {fine} figures of this machine, its store and its Python are as they should be")
        return ""
    return f"this node failed its check: {'; '.join(problems)}"


async def _with_others(
    options: Options,
    where: Address,
    store: Store,
    python: Python,
    environ: Mapping[str, str],
    say: Callable[[str], None],
) -> str:
    loop = asyncio.get_running_loop()
    name = options.node_name or socket.gethostname()
    aheads: list[float] = []

    async def run(place: Place) -> Outcome:
        outcome = await collective.run(python.path, place, environ)
        if not outcome.problem:
            aheads.append(outcome.ahead)
        return outcome

    with contextlib.ExitStack() as held:
        listeners = [held.enter_context(listener(where.bind or where.host)) for _ in range(TURNS)]
        ports = tuple(each.getsockname()[1] for each in listeners)
    me = Present(f"{name}{MARK}{secrets.token_hex(4)}", where.host, ports, versions_of(python))
    meeting = Meeting(store, options.job_id, me, options.nodes.maximum, max(1.0, options.timing.last_call_timeout))
    async with meeting.open():
        plan = await meeting.plan(loop.time() + COMING)
        if plan is None:
            say("node check: no other node came to try a collective with")
            return ""
        for line in differences({each.node: each.versions for each in plan.nodes}):
            say(f"node check: {line}")
        until = loop.time() + TURNS * collective.SECONDS + TELLING
        verdict = await meeting.turns(plan, run, until)
    if aheads and min(map(abs, aheads)) >= AHEAD:
        say(f"node check: this node's clock is {min(aheads, key=abs):+.1f} s ahead of those of the others")
    if verdict.grade in ("bad", "unclear"):
        return f"this node failed its check: {verdict.text}"
    say(f"node check: {verdict.text}")
    return ""
