"""What has happened to a job so far, in words (pure)."""

from ..rendezvous.base.plural import plural
from ..rendezvous.header import Tally


def in_words(tally: Tally, max_restarts: int | None = None) -> list[str]:
    """One item for each kind of incident that has happened; `max_restarts`: is named beside the worker failures."""
    kinds = (
        (tally.failures, "worker failure", "" if max_restarts is None else f" of {max_restarts} allowed"),
        (tally.optional, "optional-role failure", ""),
        (tally.lost, "lost node", ""),
        (tally.left, "departure", ""),
        (tally.unfit, "unfit node", ""),
        (tally.joined, "arrival", ""),
        (tally.problems, "node problem", ""),
    )
    return [f"{plural(number, name)}{more}" for number, name, more in kinds if number]
