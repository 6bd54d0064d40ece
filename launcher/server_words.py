"""What a job's parameter servers do, in words: for the terminal and for the page (pure)."""

from collections.abc import Iterator

from ..master.machine.parameter_servers import RankWait, ServersStatus
from ..master.servers.slot_table import SLOTS
from ..rendezvous.base.plural import plural, ranks
from ..rendezvous.base.visible import visible


def in_megabytes(size: int) -> str:
    """Bytes, as a person reads them beside others."""
    return f"{size / 1e6:.1f}" if size < 1e7 else f"{size / 1e6:.0f}"


def in_rate(rate: float | None, seconds: float | None) -> str:
    """So many a second, and how long each takes, such as `12 (3.1 ms)`; `-` where it is not known."""
    if rate is None:
        return "-"
    return f"{rate:.3g}" + ("" if seconds is None else f" ({1000 * seconds:.2g} ms)")


def server_copies(found: ServersStatus) -> str:
    """Whether the rows outlive the loss of any one server."""
    reports = [each.report for each in found.servers]
    unserved = SLOTS - sum(each.slots for each in reports)
    bare, copying = sum(each.bare for each in reports), sum(each.measure.copying for each in reports)
    if unserved > 0:
        words = f"{plural(unserved, 'slot')} {'is' if unserved == 1 else 'are'} not served yet"
    elif bare:
        words = f"{plural(bare, 'slot')} {'has' if bare == 1 else 'have'} no second copy"
    else:
        words = "every slot has a second copy"
    return f"{words}, {copying} are on their way" if copying else words


def table_lines(found: ServersStatus) -> Iterator[str]:
    """What each table has, over all servers."""
    for each in found.sum_tables():
        merged = f", {each.given / each.pulled:.1f} ids given for each that was pulled" if each.pulled else ""
        disk = f", {each.on_disk} of them on disk" if each.on_disk else ""
        size = f"{plural(each.rows, 'row')} (second copies included){disk}, {in_megabytes(each.bytes)} MB"
        yield f"table {visible(each.table)}: {size}{merged}"


def wait_lines(found: ServersStatus) -> Iterator[str]:
    """Which ranks wait for which servers, a line for each group: the largest MOST_GROUPS of them."""
    groups: dict[tuple[int, ...], list[RankWait]] = {}
    for each in found.waits:
        groups.setdefault(each.servers, []).append(each)
    largest = sorted(groups.items(), key=lambda each: len(each[1]), reverse=True)
    for servers, those in sorted(largest[:MOST_GROUPS]):
        who, seconds = ranks([each.rank for each in those]), max(each.seconds for each in those)
        named = [f"{number} on node {visible(found.node_of(number) or '?')}" for number in servers[:MOST_NAMED]]
        if more := len(servers) - len(named):
            named[-1] += f" and {more} more"
        what = f"parameter server{'s' if len(named) > 1 else ''} {', '.join(named)}" if named else NOT_STARTED
        yield f"{who} {'waits' if len(those) == 1 else 'wait'} for {what}, for {seconds:.0f} s"
    if left := sum(len(those) for _, those in largest[MOST_GROUPS:]):
        yield f"{plural(left, 'more rank')} {'waits' if left == 1 else 'wait'} for others"


MOST_GROUPS = MOST_NAMED = 8
"""Lines, and servers on one of them: enough to see whether all wait for one."""

NOT_STARTED = "parameter servers, which have not all started"
