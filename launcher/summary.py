"""What a person reads at the end, and the same for programs (pure, but for the writing of the file).

On failure the last `LINES` lines say who failed, how, with its own traceback, one hint and where the log is.
"""

import dataclasses
import json
import os
from collections.abc import Sequence
from pathlib import Path

from ..adapters.contract import Hint
from ..elastic_agent import plan
from ..elastic_agent.agent import Result
from ..elastic_agent.workers.failure import describe, hint, shortened
from ..master import status
from ..rendezvous.header import Header, Incident, Tally
from .settings import Options

LINES = 15
"""A terminal's last glance."""


def last_lines(options: Options, result: Result, host: str) -> list[str]:
    """The lines that end the run, at most LINES where it failed."""
    header = result.header
    over = header is not None and header.final and result.code == plan.exit_code(header)
    totals = _totals(result)
    if result.code == plan.SUCCEEDED:
        return [f"job {options.job_id} succeeded: {result.reason}", totals]
    verdict = f"job {options.job_id} failed: {result.reason}"
    if result.code >= 128:
        verdict = f"node {result.node} left job {options.job_id}: {result.reason}"
    elif result.code == plan.STORE_LOST:
        verdict = f"node {result.node} gave up on job {options.job_id}: {result.reason}"
    elif result.code == plan.REFUSED:
        return [f"the job refused this node: {result.reason}"]
    incident = header.incident if over and header else None
    if incident is None or incident.exit is None:
        return [verdict, *_advice(options, result, host), totals]
    python = options.command.python if options.command.kind != "executable" else ""
    return [verdict, *_root_cause(incident, LINES - 2, python, options.adapter.hints), totals]


def _root_cause(incident: Incident, room: int, python: str, hints: Sequence[Hint]) -> list[str]:
    exit_ = incident.exit
    assert exit_ is not None
    head = f"root cause: {describe(exit_)} on node {incident.node} (host {incident.host}) in round {incident.round}"
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
    tally = _tally(result.header)
    causes = [
        (tally.failures, "worker failure"),
        (tally.lost, "lost node"),
        (tally.left, "departure"),
        (tally.joined, "arrival"),
        (tally.problems, "node problem"),
    ]
    counts = [_count(number, name) for number, name in causes if number]
    happened = f"job total: {', '.join(counts)}; " if counts else ""
    return (
        f"summary: {_count(len(line.changes), 'round')} on this node; {happened}"
        f"workers ran for {line.trained:.1f} s, downtime {line.stopped:.1f} s"
    )


def _tally(header: Header | None) -> Tally:
    return status.counted(header) if header else Tally()


def _cause(incident: Incident) -> dict[str, object]:
    exit_ = dataclasses.asdict(incident.exit) if incident.exit else None
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


def _count(number: int, name: str) -> str:
    return f"{number} {name}{'s' if number != 1 else ''}"


def write_json(path: Path, options: Options, result: Result) -> None:
    """Writes the summary as JSON. Times are seconds; `at` counts from the agent's start."""
    header = result.header
    incident = header.incident if header and header.final else None
    goodput = status.spent(header).share if header else None
    summary = {
        "version": 1,
        "job": options.job_id,
        "node": result.node,
        "exit_code": result.code,
        "outcome": header.state if header and header.final else "left" if result.code >= 128 else "stopped",
        "reason": result.reason,
        "restarts": {
            "worker_failures": _tally(header).failures,
            "lost_nodes": _tally(header).lost,
            "departures": _tally(header).left,
            "arrivals": _tally(header).joined,
            "start_problems": _tally(header).problems,
        },
        "goodput": round(goodput, 4) if goodput is not None else None,
        "seconds_with_workers": round(result.timeline.trained, 3),
        "seconds_without_workers": round(result.timeline.stopped, 3),
        "rounds": [dataclasses.asdict(change) for change in result.timeline.changes],
        "root_cause": _cause(incident) if incident else None,
    }
    path.parent.mkdir(parents=True, exist_ok=True)
    # Not to wait for the reader of a named pipe where there is none.
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NONBLOCK | os.O_CLOEXEC, 0o666)
    os.set_blocking(descriptor, True)
    with open(descriptor, "w", encoding="utf-8") as file:  # noqa: PTH123 - a descriptor is no path
        file.write(json.dumps(summary, indent=2) + "\n")
