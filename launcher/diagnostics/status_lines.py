"""A job's status as a person reads it on a terminal (pure)."""

from collections.abc import Iterator, Sequence

from ...master.machine.memory_report import memory_words
from ...master.machine.parameter_servers import ServersStatus, ServerStatus
from ...master.machine.targets import plan_words
from ...master.status import RUNS, Node, Status
from ...rendezvous.base.plural import plural
from ...rendezvous.base.visible import visible
from ..goodput.words import lost, steps_words
from ..server_words import in_megabytes, in_rate, server_copies, table_lines, wait_lines
from ..tally import in_words

SERVER_HEADS = ("SERVER", "NODE", "STATE", "SLOTS", "ROWS", "MB", "PULLS/s", "PUSHES/s", "SAVED")
HEADS = ("NODE", "HOST", "STATE", "RANKS", "ROLE")


def lines(status: Status) -> Iterator[str]:
    """One block, without an end of line."""
    yield f"job {visible(status.job)}: {_state(status)}"
    if status.state in RUNS:
        wanted = ", ".join(f"{each.role or 'nodes'} {each.count}" for each in status.targets)
        waits = visible(str(status.next))
        within = "" if status.deadline is None else f" (at most {_span(max(0.0, status.deadline))} more)"
        yield f"  wanted: {wanted}{f'; {waits}{within}' if waits else ''}"
        yield from (f"  plan: {visible(why)}" for why in plan_words(status.targets))
    rows = [_row(node) for node in status.nodes] + [_row(node, standby=True) for node in status.standbys]
    yield from (f"  {line}" for line in _table(rows))
    if status.returning:
        yield f"  may register again, since the store was away: {', '.join(map(visible, status.returning))}"
    so_far = in_words(status.tally, status.max_restarts) or ["no incidents"]
    if (share := status.goodput.share) is not None:
        so_far.append(f"goodput {100 * share:.1f} % of {_span(status.goodput.elapsed)}")
    yield f"  so far: {', '.join(so_far)}"
    yield from (f"  lost: {words}" for words in (lost(status.goodput.split),) if words)
    if status.state == "open" and status.steps is not None:
        yield f"  steps: {steps_words(status.steps)}"
    if status.state == "open" and status.memory is not None:
        yield f"  memory: step {status.memory.step} {memory_words(status.memory)}"
    for each in status.datasets:
        left = "" if each.seconds_left is None else f", about {_span(each.seconds_left)} left"
        if each.lag is not None:
            left = f", {each.lag} offsets behind" + (f", {each.lost} lost" if each.lost else "")
        yield f"  data {visible(each.name)}: {each.done} of {each.shards} shards done, {each.leased} leased{left}"
    yield from server_lines(status.parameter_servers)
    for found in status.diagnosis:
        yield f"  diagnosis, {_span(found.ago)} ago: {visible(found.words)}"
        yield f"    {found.domain}; a restart {visible(found.outlook)}; evidence: {found.finding.strength}"
        yield from (f"    | {visible(line)}" for line in found.finding.last_lines)
    for incident in reversed(status.incidents):
        yield f"  {_span(incident.ago)} ago, round {incident.round}: {visible(str(incident.reason))}"


def server_lines(found: ServersStatus) -> Iterator[str]:
    """Its parameter servers, their tables, and who waits for them."""
    if found.servers:
        yield from (f"  {line}" for line in _table([_server_row(each) for each in found.servers], SERVER_HEADS))
        yield f"  {server_copies(found)}"
    yield from (f"  {line}" for line in (*table_lines(found), *wait_lines(found)))


def _server_row(each: ServerStatus) -> tuple[str, ...]:
    report, measure = each.report, each.report.measure
    state = report.state if report.state == "answers" else f"{report.state} for {_span(report.seconds)}"
    return (
        str(report.number),
        visible(each.node),
        state,
        f"{report.slots}+{report.backups}",
        str(sum(one.rows for one in measure.tables)),
        in_megabytes(report.resident),
        in_rate(each.pulls, each.pull_seconds),
        in_rate(each.pushes, each.push_seconds),
        "-" if measure.saved_ago is None else f"{_span(measure.saved_ago)} ago",
    )


def _state(status: Status) -> str:
    if status.state == "gathering":
        return f"no round yet, for {_span(status.age)}"
    words = {"open": "trains", "waiting": "suspended"}.get(status.state, status.state)
    why = f" ({visible(str(status.reason))})" if status.reason else ""
    workers = f", {plural(status.world_size, 'worker')}" if status.state == "open" else ""
    return f"{words} in round {status.round} for {_span(status.age)}{workers}{why}"


def _row(node: Node, *, standby: bool = False) -> tuple[str, ...]:
    if standby:
        ranks = "standby"
    elif node.first_rank is None:
        ranks = "-"
    else:
        ranks = str(node.first_rank) + (f"-{node.first_rank + node.workers - 1}" if node.workers > 1 else "")
    problem = f" ({visible(str(node.problem))})" if node.problem else ""
    role = "" if node.role in (None, "default") else node.role
    return visible(node.node), visible(node.host), f"{node.state}{problem}", ranks, visible(role or "")


def _table(rows: Sequence[tuple[str, ...]], heads: tuple[str, ...] = HEADS) -> Iterator[str]:
    if not rows:
        return
    table = [heads, *rows]
    widths = [max(len(row[column]) for row in table) for column in range(len(heads))]
    for row in table:
        yield "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()


def _span(seconds: float) -> str:
    if seconds < 120:
        return f"{seconds:.0f} s"
    if seconds < 7200:
        return f"{seconds / 60:.0f} min"
    return f"{seconds / 3600:.1f} h"
