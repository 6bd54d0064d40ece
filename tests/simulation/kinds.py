"""The kinds of schedules that a seed alone decides, by name."""

from collections.abc import Callable, Mapping

from .masters import draw_with_masters
from .roles import draw_alone, draw_with_roles
from .schedule import Schedule, draw, parse
from .services import draw_with_services

DRAWS: Mapping[str, Callable[[int], Schedule]] = {
    "plain": draw,
    "roles": draw_with_roles,
    "alone": draw_alone,
    "masters": draw_with_masters,
    "services": draw_with_services,
}


def schedule_of(each: str | int) -> Schedule:
    """The schedule of a plain seed, of a kind and a seed (`masters 17`), or of a text. Raises Unreadable."""
    kind, _, seed = each.partition(" ") if isinstance(each, str) else ("plain", "", str(each))
    return DRAWS[kind](int(seed)) if kind in DRAWS else parse(str(each))
