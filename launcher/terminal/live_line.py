"""One line at the bottom of a terminal that tells how the job is. It is shown only where stderr is a terminal."""

import asyncio
from collections.abc import Awaitable, Callable

from ...master.status import Status
from ...rendezvous.base.errors import RendezvousError
from ...rendezvous.base.plural import plural
from ...rendezvous.base.visible import visible
from ..goodput.words import span, steps_words

FIRST, EACH = 2.0, 1.0
"""Seconds until it appears, since a short job has no use for it, and between two changes of it."""

PATIENCE = 5.0
"""Seconds for the answer of whoever leads the job."""

BAR = 12
"""Characters of a bar."""

Asks = Callable[[], Awaitable[Status]]


def text(status: Status) -> str:
    """The job in one line, the most important first: a narrow terminal cuts the rest."""
    parts = [_state(status)]
    if status.state == "open":
        parts.append(f"{plural(status.world_size, 'worker')} on {plural(len(status.nodes), 'node')}")
    if status.state == "open" and status.steps is not None:
        parts.append(steps_words(status.steps))
    parts += [_data(each.name, each.done, each.shards, each.seconds_left) for each in status.datasets[:2]]
    if status.tally.failures:
        parts.append(f"{status.tally.failures} of {status.max_restarts} restarts")
    if (share := status.goodput.share) is not None and status.goodput.elapsed >= 60:
        parts.append(f"goodput {100 * share:.0f} %")
    return " | ".join(parts)


def _state(status: Status) -> str:
    match status.state:
        case "gathering":
            return f"waits for nodes, {span(status.age)}"
        case "waiting":
            return f"suspended, {span(status.age)}"
        case "open":
            return f"round {status.round}, {span(status.age)}"
        case _:
            return status.state


def _data(name: str, done: int, shards: int, left: float | None) -> str:
    share = done / shards if shards else 1.0
    full = min(BAR, int(share * BAR))
    rest = f", {span(left)} left" if left is not None else ""
    return f"{visible(name)} [{'#' * full}{'.' * (BAR - full)}] {done}/{shards}{rest}"


async def keep(ask: Asks, show: Callable[[str], None]) -> None:
    """Shows the job again and again, until it is cancelled; then nothing.

    Args:
        ask: how the job is; raises RendezvousError or OSError where nobody tells it now.
        show: the line, or an empty one for none.
    """
    try:
        await asyncio.sleep(FIRST)
        while True:
            try:
                async with asyncio.timeout(PATIENCE):
                    show(text(await ask()))
            except (RendezvousError, OSError):  # TimeoutError is one
                show("no master answers")
            await asyncio.sleep(EACH)
    finally:
        show("")
