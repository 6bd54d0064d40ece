"""What a person reads at the end, and the same for programs (pure, but for the writing of the file).

On failure the last `LINES` lines say who failed, how, with its own traceback, one hint and where the log is.
"""

import dataclasses
import json
from collections.abc import Sequence
from pathlib import Path

from ..adapters.contract import Hint
from ..elastic_agent.agent import Result
from ..elastic_agent.machine import plan
from ..elastic_agent.workers.failure import describe, hint, shortened
from ..master import status
from ..master.diagnosis.findings import HANGS, Finding
from ..master.machine.incident import consequence
from ..master.machine.training_time import Goodput
from ..rendezvous.base.plural import plural
from ..rendezvous.header import Header, Incident, Tally
from ..rendezvous.host.named_files import write_named
from ..rendezvous.time_split import CATEGORIES, Category, Split
from .goodput import marks
from .goodput.words import SHORTEST, lost, span
from .options.flags import FLAGS
from .settings import Options
from .tally import in_words

LINES = 15
"""A terminal's last glance."""

LONG = 60.0
"""Seconds from which on a job's goodput is worth a line."""

MISPLACED = Hint(
    rf"unrecognized arguments:(?: \S+)*? --(?:{'|'.join(flag.name.replace('-', '[-_]') for flag in FLAGS)})\b",
    "what follows the script is its own: write a flag of elastic-run before the script",
)

TOLD: tuple[Category, ...] = tuple(each for each in CATEGORIES if each not in ("productive", "initialization", "other"))
"""What is worth a line: every job has the others."""


def spent(options: Options, result: Result, *, traced: bool = True) -> Split | None:
    """The job's time by category, with what the script says of it where this node is `traced`; None before a round.

    Reads the trace, so it is asked once.
    """
    header = result.header
    if header is None or not header.split.total:
        return None
    file = options.output.trace if traced else None
    return header.split.marking(marks.of_file(file)) if file else header.split


def last_lines(options: Options, result: Result, host: str, split: Split | None) -> list[str]:
    """The lines that end the run, at most LINES where it failed; `split`: see `spent`."""
    totals = _totals(result)
    if result.code == plan.SUCCEEDED:
        told = [*_stood_still(result), *_goodput(options, result.header, split), totals]
        return [f"job {options.job_id} succeeded: {result.reason}", *told]
    verdict = f"job {options.job_id} failed: {result.reason}"
    if result.code >= 128:
        verdict = f"node {result.node} left job {options.job_id}: {result.reason}"
    elif result.code == plan.STORE_LOST:
        verdict = f"node {result.node} gave up on job {options.job_id}: {result.reason}"
    elif result.code == plan.REFUSED:
        return [f"the job refused this node: {result.reason}"]
    incident = _final_incident(result)
    if incident is None or incident.exit is None:
        return [verdict, *_stood_still(result), *_advice(options, result, host), totals]
    if not consequence(incident):
        verdict = verdict.replace(f"{incident.reason}; ", "", 1)  # the root cause has a line of its own
    python = options.command.python if options.command.kind != "executable" else ""
    before = _stood_still(result)
    room = LINES - 2 - len(before)
    return [verdict, *before, *_root_cause(incident, room, python, (MISPLACED, *options.adapter.hints)), totals]


def _final_incident(result: Result) -> Incident | None:
    """What ended the job, where this node ended for that."""
    header = result.header
    return header.incident if header and header.final and result.code == plan.exit_code(header) else None


def _root_cause(incident: Incident, room: int, python: str, hints: Sequence[Hint]) -> list[str]:
    exit_ = incident.exit
    assert exit_ is not None
    what = "the cause is not known; first to fail" if consequence(incident) else "root cause"
    head = f"{what}: {describe(exit_)} on node {incident.node} (host {incident.host}) in round {incident.round}"
    tail = [f"hint: {words}"] if (words := hint(exit_, python=python, hints=hints)) else []
    tail.append(f"log: {exit_.log} on {incident.host}" if exit_.log else "log: above (--log-dir keeps it in files)")
    if exit_.message and not exit_.traceback:
        tail.insert(0, f"  {exit_.message}")
    lines = shortened(exit_.traceback, room - 1 - len(tail))
    return [head, *(f"  {line}" for line in lines), *tail]


def _advice(options: Options, result: Result, host: str) -> list[str]:
    if result.code == plan.TIMEOUT:
        where = ", ".join(map(str, options.store.endpoints)) or "this machine"
        return [
            f"hint: the rendezvous endpoint of this node ({host}) is {where}; start all nodes with the same "
            f"--rdzv-endpoint and --rdzv-id={options.job_id} (without an id, with the same command), or lower "
            f"{'the minima of --roles' if options.roles else f'--nnodes={options.nodes}'}",
        ]
    return []


def _totals(result: Result) -> str:
    line = result.timeline
    incidents = in_words(_tally(result.header))
    happened = f"job total: {', '.join(incidents)}; " if incidents else ""
    return (
        f"summary: {plural(len(line.changes), 'round')} on this node; {happened}"
        f"workers ran for {line.trained:.1f} s, downtime {line.stopped:.1f} s"
    )


def _goodput(options: Options, header: Header | None, split: Split | None) -> list[str]:
    """A line, where something took time from training, of a job that was no mere trial."""
    goodput = Goodput.of(header.split if header else Split())
    if (
        split is None
        or goodput.share is None
        or goodput.elapsed < LONG
        or not any(getattr(split, name) >= SHORTEST for name in TOLD)
    ):
        return []
    trace = options.output.trace
    mib = marks.unread(trace) / (1 << 20) if trace else 0.0
    less = f" ({mib:.0f} MiB in the middle of the trace were not read for it)" if mib else ""
    return [f"goodput: {100 * goodput.share:.1f} % of {span(goodput.elapsed)}; lost: {lost(split)}{less}"]


def _tally(header: Header | None) -> Tally:
    return status.counted(header) if header else Tally()


def _cause(incident: Incident) -> dict[str, object]:
    exit_ = dataclasses.asdict(incident.exit) if incident.exit else None
    if exit_ and consequence(incident):  # nobody is accused
        return _cause(dataclasses.replace(incident, node="", host="", exit=None)) | {"first_exit": exit_}
    return {
        "round": incident.round,
        "cause": incident.cause,
        "code": incident.reason.code,
        "text": str(incident.reason),
        "node": incident.node,
        "host": incident.host,
        "exit": exit_,
        "ran": incident.ran,
    }


def _finding(finding: Finding) -> dict[str, object]:
    return {
        "kind": finding.kind,
        "rank": finding.rank,
        "node": finding.node,
        "round": finding.round,
        "domain": finding.domain,
        "outlook": finding.outlook,
        "evidence": finding.strength,
        "words": str(finding),
        "done": finding.done,
    }


def _stood_still(result: Result) -> list[str]:
    """A standstill that was acted upon, or, before a failure, was there; nothing where the reason names it."""
    found = [each for each in result.findings if each.kind in HANGS and (each.done or result.code != plan.SUCCEEDED)]
    return [
        f"diagnosis of round {each.round}: {each}; evidence: {each.strength}{each.done and '; '}{each.done}"
        for each in sorted(found, key=lambda each: bool(each.done))[-1:]
        if str(each) not in result.reason
    ]


def write_json(path: Path, options: Options, result: Result, split: Split | None) -> None:
    """Writes the summary as JSON; `split`: see `spent`. Times are seconds; `at` counts from the agent's start."""
    header = result.header
    incident = header.incident if header and header.final else None
    goodput = Goodput.of(header.split if header else Split())
    trace = options.output.trace
    summary = {
        "version": 1,
        "job": options.job_id,
        "node": result.node,
        "exit_code": result.code,
        "outcome": header.state if header and header.final else "left" if result.code >= 128 else "stopped",
        "reason": result.reason,
        "restarts": {
            "worker_failures": _tally(header).failures,
            "optional_role_failures": _tally(header).optional,
            "lost_nodes": _tally(header).lost,
            "departures": _tally(header).left,
            "unfit_nodes": _tally(header).unfit,
            "arrivals": _tally(header).joined,
            "start_problems": _tally(header).problems,
        },
        "goodput": round(goodput.share, 4) if goodput.share is not None else None,
        "time_seconds": dict(split.seconds) if split else None,
        "trace_bytes_not_read": marks.unread(trace) if trace else 0,
        "seconds_with_workers": round(result.timeline.trained, 3),
        "seconds_without_workers": round(result.timeline.stopped, 3),
        "rounds": [dataclasses.asdict(change) for change in result.timeline.changes],
        "root_cause": _cause(incident) if incident else None,
        "diagnosis": [_finding(each) for each in result.findings],
    }
    _write(path, json.dumps(summary, indent=2) + "\n")


def write_error(path: Path, result: Result, now: float) -> None:
    """Writes why it failed as torch's agent does for whoever started it; `now`: seconds of the Unix epoch."""
    incident = _final_incident(result)
    exit_ = incident.exit if incident else None
    told = (exit_.message if exit_ else "") or result.reason
    error = {
        "message": told,
        "extraInfo": {"py_callstack": (exit_.traceback if exit_ else "") or told, "timestamp": str(int(now))},
        "errorCode": exit_.status if exit_ else result.code,
    }
    _write(path, json.dumps({"message": error}))


def _write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    write_named(path, text)
