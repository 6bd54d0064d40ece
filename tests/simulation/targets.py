"""What must hold of a job's targets: how many nodes its masters say that it wants."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

from elastic_run.rendezvous.host.trace_file import Trace

from .roles import declared

if TYPE_CHECKING:
    from .invariants import Checker
    from .world import World

FINAL = "JobOver"
"""The code of the reason for wanting nobody."""


@dataclass(frozen=True, slots=True)
class Span:
    """How many nodes a job, or a role of it, may have."""

    least: int
    most: int


class Told(Trace):
    """Where one agent's masters record what they want."""

    def __init__(self, rules: "TargetRules", owner: str) -> None:
        super().__init__()
        self._rules = rules
        self._owner = owner

    def instant(self, name: str, row: str, /, **args: object) -> None:
        """Nothing is written; a target is looked at."""
        match args:
            case {"role": str(role), "count": int(count), "code": str(code)} if name == "target":
                self._rules.on_target(self._owner, role, count, code)
            case _:
                pass


class TargetRules:
    """What must hold of targets, whatever happens."""

    def __init__(self, world: "World", checker: "Checker") -> None:
        self._world = world
        self._checker = checker
        shape = world.shape
        units = shape.max // shape.unit * shape.unit
        least = -(-shape.min // shape.unit) * shape.unit
        self._spans = {role.name: Span(role.min_nodes, role.max_nodes) for role in declared(shape.roles)} or {
            "": Span(least, units)
        }
        self._wanted: dict[str, dict[str, tuple[int, str]]] = {}  # by agent and role: how many, and the reason's code

    def on_target(self, owner: str, role: str, count: int, code: str) -> None:
        """The master on that agent wants so many nodes for this role."""
        self._wanted.setdefault(owner, {})[role] = count, code
        span = self._spans.get(role)
        if span is None:
            self._violated("a target is for a role of the job", f"{role!r}")
        elif count > span.most:
            self._violated("a job wants no more than it may have", f"{count} of {role!r}, of {span}")
        elif (count == 0) != (code == FINAL) and span.least:
            self._violated("a job wants no nodes when it is over, and not before", f"{count} of {role!r}: {code}")
        elif count < span.least and code != FINAL:
            self._violated("a job wants what it cannot do without", f"{count} of {role!r}, of {span}")

    def on_running(self, leader: str | None, has: dict[str, int], *, finishing: bool) -> None:
        """All workers of the newest round train, in a calm schedule; of each role it has so many nodes."""
        wanted = self._wanted.get(leader or "")
        if wanted is None or finishing:
            return
        for role, span in self._spans.items():
            right = has.get(role, 0) if self._world.shape.scale_up == "never" else span.most
            if role not in wanted:
                self._violated("a job says what it wants of each role", f"nothing of {role!r}")
            elif wanted[role][0] != right:
                self._violated("a job wants what it may have", f"{wanted[role]} of {role!r}, and not {right}")

    def on_end(self, owner: str) -> None:
        """That agent has ended the job, has seen everybody off, and has ended in order."""
        for role, (count, code) in self._wanted.get(owner, {}).items():
            if count:
                self._violated("a job that is over wants no nodes", f"{count} of {role!r}: {code}")

    def _violated(self, rule: str, what: str) -> None:
        self._world.violated(rule, what)
