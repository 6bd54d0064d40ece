"""A job's story as one HTML page, with nothing loaded from elsewhere (pure).

Whatever came from a worker, a node or the store goes through `_text` or `_block`: shown, and never obeyed. The page has
no script of its own, and its policy allows none; a live page is given the one that keeps it up to date.
"""

import base64
import hashlib
from collections.abc import Iterable, Sequence
from html import escape

from ...elastic_agent.workers.failure import describe, hint
from ...master.machine.incident import consequence
from ...master.machine.parameter_servers import ServersStatus
from ...master.machine.training_time import Goodput
from ...master.status import Diagnosis
from ...rendezvous.base.plural import plural, ranks
from ...rendezvous.base.visible import visible
from ...rendezvous.header import Incident
from ...rendezvous.time_split import MICROSECONDS, Split
from ..goodput.words import local_time, span, words
from ..server_words import in_megabytes, in_rate, server_copies, table_lines, wait_lines
from ..terminal.rank_lines import frame_words
from .picture import Mark, bar, line, steps
from .story import Interruption, Story, Tail
from .style import STYLE
from .throughput import records_a_second, steps_a_second

STATES = {
    "gathering": ("waits for nodes", "warn"),
    "open": ("trains", "good"),
    "waiting": ("suspended", "warn"),
    "succeeded": ("succeeded", "good"),
    "failed": ("failed", "bad"),
    "repeated": ("failed: the same failure again and again", "bad"),
    "preempted": ("preempted", "warn"),
    "timeout": ("ended: nodes were missing", "bad"),
}

POLICY = "default-src 'none'; style-src '{style}'; base-uri 'none'; form-action 'none'"
"""What a browser may do with the page: show it."""

MOST_LINKS = 64
"""Ranks of one node that have a link."""

MOST_SHOWN = 200
"""Interruptions and rounds that are shown; the newest."""


def digest(text: str) -> str:
    """As a policy names what stands in the page itself."""
    return f"sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}"


def page(story: Story) -> str:
    policy = POLICY.format(style=digest(STYLE))
    head = f'<meta http-equiv="Content-Security-Policy" content="{escape(policy)}">'
    return document(story.job, head, body(story))


def document(title: str, head: str, main: str, end: str = "") -> str:
    """The frame around `main`; `head` and `end` are HTML."""
    return (
        f'<!doctype html>\n<html lang="en"><head><meta charset="utf-8">{head}'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{_text(title)} - elastic-run</title><style>{STYLE}</style></head>\n"
        f'<body><a class="skip" href="#main">Skip to the content</a><main id="main">\n{main}\n</main>{end}'
        "</body></html>\n"
    )


def body(story: Story, *, live: bool = False) -> str:
    """What stands in `main`; `live`: ranks can be looked at."""
    live = live and not story.over
    return "\n".join(
        part
        for part in (
            _head(story),
            _root_cause(story.root_cause, story),
            _suspects(story, live=live),
            _tiles(story),
            _world(story),
            _time(story.split),
            _interruptions(story),
            _earlier(story),
            _data(story),
            _servers(story.servers),
            _nodes(story, live=live),
            _rounds(story),
            _tails(story.tails, story),
            _foot(story),
        )
        if part
    )


def _text(value: object) -> str:
    """One line from anywhere."""
    return escape(visible(str(value)))


def _moment(unix: float) -> str:
    made = local_time(unix)
    return f'<time datetime="{made}">{made}</time>' if made[0].isdigit() else made


def _head(story: Story) -> str:
    state, kind = STATES[story.state]
    script = f" of {_text(story.script)}" if story.script else ""
    reason = f"<p>{_text(story.reason)}</p>" if story.reason else ""
    plan = f"<p>Plan: {_text(story.plan)}.</p>" if story.plan else ""
    return (
        f'<header><h1>{_text(story.job)} <span class="pill {kind}">{state}</span></h1>'
        f"<p>A job{script}, from {_moment(story.began)} to {_moment(story.until)}{'' if story.over else ' so far'}, "
        f"for {span(story.until - story.began)}.</p>{reason}{plan}</header>"
    )


def _tiles(story: Story) -> str:
    share = Goodput.of(story.split).share
    last = story.changes[-1] if story.changes else None
    opened = [each for each in story.changes if each.state == "open"]
    world = last.world_size if last and not story.over else max((each.world_size for each in opened), default=0)
    down = sum(each.down or 0.0 for each in story.interruptions)
    tally = last.tally if last else None
    failures = f"{tally.failures} of {last.max_restarts}" if tally and last else "-"
    tiles = (
        ("-" if share is None else f"{100 * share:.1f} %", "goodput"),
        (str(world), "workers at most" if story.over else "workers now"),
        (str(len(opened)), "rounds"),
        (str(sum(not each.ended for each in story.interruptions)), "changes of membership"),
        (span(down), "downtime in all"),
        (failures, "failures of those allowed"),
    )
    return (
        f'<div class="tiles">{"".join(f"<div><b>{value}</b><span>{name}</span></div>" for value, name in tiles)}</div>'
    )


def _root_cause(incident: Incident | None, story: Story) -> str:
    if incident is None:
        return ""
    where = f" on node {_text(incident.node)} (host {_text(incident.host)})" if incident.node else ""
    title = "First failure" if consequence(incident) else "Root cause"
    made = [f"<p>{_text(incident.reason)}</p>"]
    if exit_ := incident.exit:
        made.append(f"<p>{_text(describe(exit_))}{where}, in round {incident.round}.</p>")
        if exit_.traceback:
            made.append(_pre(exit_.traceback, "Traceback", "cause"))
        if advice := hint(exit_):
            made.append(f"<p>What to do: {_text(advice)}</p>")
        if exit_.log:
            made.append(f'<p class="soft">Log: {_text(exit_.log)}</p>')
    return _section("cause", title, "".join(made), "bad")


def _suspects(story: Story, *, live: bool) -> str:
    """What a diagnosis says of the job as it is now."""
    if not story.suspects:
        return ""
    slow = all(each.finding.kind.startswith("slow-") for each in story.suspects)
    title = "Why the job is slow" if slow else "Why the job is slow or makes no progress"
    made = ""
    for number, each in enumerate(story.suspects):
        made += f"<p><b>{_text(each.words)}</b></p>{_finding(each, f'now{number}')}"
        if live and (rank := each.finding.rank) is not None:
            made += f"<p>{_rank_link(rank, f'Look at rank {rank} now')}</p>"
    return _section("suspects", title, made, "bad")


def _rank_link(rank: int, words: str) -> str:
    return f'<a href="rank?number={rank}">{words}</a>'


def _earlier(story: Story) -> str:
    """What a diagnosis has found before; of a round that has ended it stands with the interruption as well."""
    now = {each.finding.key for each in story.suspects}
    before = [each for each in story.found if each.key not in now]
    if not before:
        return ""
    made = "".join(
        _details(
            f"f{number}",
            _text(each.diagnosis.words),
            f"{_since(each.unix, story)}, round {each.diagnosis.finding.round}",
            _finding(each.diagnosis, f"f{number}"),
        )
        for number, each in enumerate(before)
    )
    return _section("found", "What the diagnosis had found before", made)


def _finding(each: Diagnosis, key: str) -> str:
    """The evidence of one: who waits where, the calls of the suspect, its last lines."""
    finding = each.finding
    rows = [
        ("domain", _text(each.domain)),
        ("a restart", _text(each.outlook)),
        ("evidence", _text(finding.strength)),
        ("done", _text(finding.done or "nothing but to tell it")),
    ]
    if finding.where:
        rows.append(("place", _text(finding.where)))
    if finding.waiting:
        at = f" in {_text(finding.waiting_where)}" if finding.waiting_where else ""
        rows.append(("waiting", f"{_text(ranks(finding.waiting))}{at}"))
    made = _rows(rows)
    if finding.frames:
        calls = "\n".join(map(frame_words, finding.frames))
        made += "<h3>Its calls, the innermost first</h3>" + _pre(calls, "Calls", f"{key}s")
    if finding.last_lines:
        made += "<h3>Its last lines</h3>" + _pre("\n".join(finding.last_lines), "Last lines", f"{key}l")
    return made


def _rows(rows: Iterable[tuple[str, str]]) -> str:
    """Names and values, which are HTML, one under the other."""
    made = "".join(f'<tr><th scope="row">{name}</th><td>{value}</td></tr>' for name, value in rows)
    return f"<table><tbody>{made}</tbody></table>"


def rank_page(rank: int, where: str, stacks: Iterable[str], log: Iterable[str], trouble: str = "") -> str:
    """One rank as it is now, for `document`.

    Args:
        where: on which node, and when that was seen.
        stacks, log: lines.
        trouble: why nothing is known of it; empty where something is.
    """
    links = f'<p><a href="/">Back to the job</a> <a href="rank?number={rank}">Look again</a></p>'
    title = f"<header><h1>rank {rank}</h1><p>{_text(where)}</p></header>{links}"
    if trouble:
        return f"{title}<p class='warn'>{_text(trouble)}</p>"
    parts = (("Where it is", "\n".join(stacks), "stacks"), ("Its last output", "\n".join(log), "log"))
    return title + "".join(_section(key, name, _pre(text, name, key)) for name, text, key in parts)


def _pre(text: str, name: str, key: str) -> str:
    """`key`: by which a live page knows it again."""
    lines = "\n".join(_text(each) for each in text.rstrip("\n").split("\n"))
    return f'<pre tabindex="0" role="region" aria-label="{escape(name)}" data-scroll="{key}">{lines}</pre>'


def _section(key: str, title: str, content: str, kind: str = "") -> str:
    """A part of the page under a heading, of HTML; `kind`: the heading's class."""
    marked = f' class="{kind}"' if kind else ""
    return f'<section aria-labelledby="{key}"><h2 id="{key}"{marked}>{title}</h2>{content}</section>'


def _details(key: str, summary: str, aside: str, content: str) -> str:
    """What is unfolded under a line, of HTML. `key`: as for `_pre`."""
    line = f'<summary>{summary} <span class="soft">({aside})</span></summary>'
    return f'<details data-key="{key}">{line}{content}</details>'


def _world(story: Story) -> str:
    values: list[tuple[float, float]] = [(story.began, 0)]
    resumed = {each.opened: each.resumed for each in story.interruptions if each.resumed and not each.in_place}
    for each in story.changes:
        size = each.world_size if each.state == "open" else 0
        values.append((max(each.unix, resumed.get(each.number) or 0.0), size))
    values += [(each.at, 0) for each in story.interruptions if not each.in_place]
    values.sort(key=lambda each: each[0])
    marks = [
        Mark(each.at, str(number), f"{number}: {visible(each.reason)}", f"i{number}")
        for number, each in enumerate(story.interruptions, 1)
    ]
    picture = steps(values, story.began, story.until, "Workers that train, over time", marks)
    more = " Each number is explained below." if marks else ""
    told = f'<p class="soft">Workers that train; time since the beginning.{more}</p>'
    return _section("world", "World size over time", f"{picture}{told}{_throughput(story)}")


def _throughput(story: Story) -> str:
    """What the workers get done, on the same axis as their number."""
    made = ""
    for name, values in (("Records", records_a_second(story.points)), ("Steps", steps_a_second(story.points))):
        if values:
            now = "" if story.over else f", {values[-1][1]:.3g} now"
            picture = steps(values, story.began, story.until, f"{name} a second, over time")
            made += f"<h3>{name} a second{now}</h3>{picture}"
    return made


def _time(split: Split) -> str:
    if not split.total:
        return ""
    parts = sorted(((name, value) for name, value in split if value), key=lambda each: -each[1])
    rows = "".join(
        f'<tr><td><span class="swatch c-{name}"></span>{words(name)}</td>'
        f'<td class="n">{span(value / MICROSECONDS)}</td><td class="n">{100 * value / split.total:.1f} %</td></tr>'
        for name, value in parts
    )
    title = "; ".join(f"{words(name)} {100 * value / split.total:.1f} %" for name, value in parts)
    table = (
        '<table><thead><tr><th scope="col">since the first round</th><th class="n" scope="col">time</th>'
        f'<th class="n" scope="col">share</th></tr></thead><tbody>{rows}</tbody></table>'
    )
    picture = bar([(name, float(value)) for name, value in parts], title)
    return _section("time", "Where the time went", picture + table)


def _interruptions(story: Story) -> str:
    if not story.interruptions:
        return ""
    numbered = list(enumerate(story.interruptions, 1))
    shown = numbered[-MOST_SHOWN:]
    left = f"<p>The first {len(numbered) - len(shown)} are not shown.</p>" if len(shown) < len(numbered) else ""
    made = "".join(_interruption(number, each, story) for number, each in shown)
    return _section("interruptions", "Interruptions and changes of membership", left + made)


def _interruption(number: int, each: Interruption, story: Story) -> str:
    down = f", downtime {span(each.down)}" if each.down is not None and not each.in_place else ""
    size = (
        "the job ended"
        if each.ended
        else f"{each.before} to {plural(each.after, 'worker')}"
        if each.after
        else "suspended"
    )
    kept = ", workers kept their process" if each.in_place else ""
    rows = [
        ("cause", f"{escape(each.cause)} <code>{escape(each.code)}</code>"),
        ("when", f"{_since(each.at, story)}, {_moment(each.at)}, in round {each.over}"),
    ]
    if each.incident and each.incident.node:
        rows.append(("node", f"{_text(each.incident.node)} (host {_text(each.incident.host)})"))
    if each.resumed is not None:
        rows.append(("workers ran again", f"{span(max(0.0, each.resumed - each.at))} after the first evidence"))
    seen = "".join(
        f"<li>{_since(one.at, story)}, node {_text(one.node)}: {_text(one.text)}</li>" for one in each.evidence
    )
    evidence = f"<h3>Evidence</h3><ul>{seen}</ul>" if seen else ""
    said = "".join(
        f"<p>{_text(one.diagnosis.words)} ({_since(one.unix, story)}, {_moment(one.unix)})</p>"
        f"{_finding(one.diagnosis, f'i{number}f{index}')}"
        for index, one in enumerate(each.found)
    )
    diagnosed = f"<h3>Diagnosis</h3>{said}" if said else ""
    exit_ = each.incident.exit if each.incident else None
    trace = _pre(exit_.traceback, "Traceback", f"i{number}") if exit_ and exit_.traceback else ""
    advice = hint(exit_) if exit_ else ""
    todo = f"<p>What to do: {_text(advice)}</p>" if advice else ""
    return _details(
        f"i{number}",
        f"<b>{number}</b> {_text(each.reason)}",
        f"{_since(each.at, story)}{down}; {size}{kept}",
        f'<div id="i{number}">{_rows(rows)}{evidence}{diagnosed}{trace}{todo}</div>',
    )


def _since(at: float, story: Story) -> str:
    return f"+{span(max(0.0, at - story.began))}"


def _data(story: Story) -> str:
    last = story.points[-1] if story.points else None
    if last is None or not last.datasets:
        return ""
    made: list[str] = []
    for each in last.datasets:
        left = f", about {span(each.seconds_left)} left" if each.seconds_left is not None and not story.over else ""
        name = _text(each.name)
        values = [
            (point.unix, float(found.done))
            for point in story.points
            for found in point.datasets
            if found.name == each.name
        ]
        spent = values[-1][0] - values[0][0]
        pace = f", {(values[-1][1] - values[0][1]) / spent:.2g} shards a second" if spent > 0 else ""
        title = f"Shards of {visible(each.name)} that are done, over time"
        made.append(
            f"<h3>{name}</h3><p>{each.done} of {plural(each.shards, 'shard')} done, "
            f"{each.leased} leased{pace}{left}</p>"
            f'<progress max="{max(1, each.shards)}" value="{each.done}" aria-label="{name}"></progress>'
            f"{line(values, story.began, story.until, title)}"
        )
    return _section("data", "Data", "".join(made))


def _servers(found: ServersStatus) -> str:
    """The parameter servers as they were last, and who waits for them."""
    if not found.servers:
        return ""
    rows = (
        (
            str(each.report.number),
            _text(each.node),
            each.report.state,
            f"{each.report.slots}+{each.report.backups}",
            str(sum(one.rows for one in each.report.measure.tables)),
            in_megabytes(each.report.resident),
            in_rate(each.pulls, each.pull_seconds),
            in_rate(each.pushes, each.push_seconds),
        )
        for each in found.servers
    )
    heads = ("server", "node", "state", "slots", "rows", "MB", "pulls a second", "pushes a second")
    waits = "".join(f'<p class="warn">{_text(each)}</p>' for each in wait_lines(found))
    told = "".join(f"<p>{_text(each)}</p>" for each in (server_copies(found), *table_lines(found)))
    return _section("servers", "Parameter servers", f"{waits}{_table('Parameter servers', heads, rows)}{told}")


def _table(name: str, heads: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Cells are HTML."""
    head = "".join(f'<th scope="col">{each}</th>' for each in heads)
    made = "".join(f"<tr>{''.join(f'<td>{cell}</td>' for cell in row)}</tr>" for row in rows)
    return (
        f'<div class="scroll" tabindex="0" role="region" aria-label="{name}" data-scroll="{name}">'
        f"<table><thead><tr>{head}</tr></thead><tbody>{made}</tbody></table></div>"
    )


def _nodes(story: Story, *, live: bool) -> str:
    if not story.nodes:
        return ""
    roles = any(each.role for each in story.nodes)
    rows = (
        (
            _text(each.node),
            _text(each.host),
            _text(each.state),
            _rank_links(each.ranks) if live else each.ranks,
            *((_text(each.role),) if roles else ()),
            str(each.rounds),
            _text(each.reason),
        )
        for each in story.nodes
    )
    heads = ("node", "host", "state", "ranks", *(("role",) if roles else ()), "rounds", "reason")
    return _section("nodes", "Nodes and ranks", _table("Nodes", heads, rows))


def _rank_links(ranks: str) -> str:
    """`3-5` as links to each of them."""
    first, _, last = ranks.partition("-")
    if not first.isdecimal():
        return ranks
    numbers = range(int(first), int(last or first) + 1)
    links = " ".join(_rank_link(each, str(each)) for each in numbers[:MOST_LINKS])
    return links if len(numbers) <= MOST_LINKS else f"{links} to {numbers[-1]}"


def _rounds(story: Story) -> str:
    if not story.changes:
        return ""
    rows = (
        (
            str(each.number),
            _since(each.unix, story),
            STATES[each.state][0],
            str(each.nodes),
            str(each.world_size),
            escape(each.cause),
            _text(each.reason),
        )
        for each in story.changes[-MOST_SHOWN:]
    )
    heads = ("number", "at", "state", "nodes", "workers", "cause", "reason")
    summary = f"{plural(len(story.changes), 'header')} of rounds, suspensions and the end"
    table = f'<details data-key="rounds"><summary>{summary}</summary>{_table("Rounds", heads, rows)}</details>'
    return _section("rounds", "Rounds", table)


def _tails(tails: Sequence[Tail], story: Story) -> str:
    if not tails:
        return ""
    made = "".join(
        _details(
            _key(each),
            f"rank {each.rank} on node {_text(each.node)} in round {each.round}",
            _since(each.at, story),
            f"{_pre(each.text, 'Last output', _key(each)) if each.text else ''}"
            f"{_pre(each.traceback, 'Traceback', _key(each) + 't') if each.traceback not in each.text else ''}",
        )
        for each in tails[-MOST_SHOWN:]
    )
    return _section("tails", "The last output of failed workers", made)


def _key(tail: Tail) -> str:
    return f"t{tail.round}-{tail.rank}"


def _foot(story: Story) -> str:
    clocks = [f"{_text(node)} {by:+.3f} s" for node, by in story.clocks.items() if abs(by) >= 0.001]
    told = f" Clocks of nodes were moved by: {', '.join(clocks)}." if clocks else ""
    unread = f" {plural(story.unread, 'line')} could not be read." if story.unread else ""
    sources = f" From {', '.join(map(_text, story.files))}." if any(story.files) else ""
    made = f"Made by elastic-run {_text(story.version)}, run {_text(story.run or '-')}."
    return f"<footer>{made}{sources}{told}{unread}</footer>"
