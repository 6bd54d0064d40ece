"""Whether a new master goes on with what an earlier one has left: loading, returning, adopting.

A part of the controller (pure).
"""

from collections.abc import Collection, Mapping
from dataclasses import replace
from typing import Literal

from ...rendezvous.header import Header
from ...rendezvous.member import Member
from . import effects, events
from .memory import Memory


class Adoption:
    """Of one leadership.

    Args:
        memory: what this node knows from before; the runs that are found without any of their nodes are added.

    Attributes:
        phase: as in `controller.py`; None once this master leads.
        found: what an earlier master has left.
    """

    def __init__(self, memory: Memory) -> None:
        self.phase: Literal["loading", "returning", "adopting"] | None = "loading"
        self.found = events.Found(None, 0, 0.0)
        self._memory = memory
        self._waited = False  # the successes have to be read again before the header is adopted

    @property
    def header(self) -> Header:
        """That was found."""
        assert self.found.header is not None, "without a header there is nothing to adopt"
        return self.found.header

    def load(self, found: events.Found) -> None:
        """This was found; without a header there is nothing to adopt, and this master leads."""
        self.found, self.phase = found, "returning" if found.header else None

    def read_again(self, successes: tuple[events.Success, ...]) -> None:
        """These are the successes now."""
        self.found, self._waited = replace(self.found, successes=successes), False

    def await_returns(self, until: float | None) -> effects.Wait | effects.ReadSuccesses | None:
        """What is to be done where nodes may return `until` then; None: nothing, the header can be adopted."""
        if until is not None:
            self._waited = True
            return effects.Wait(until)
        if self._waited:
            return effects.ReadSuccesses()
        self.phase = "adopting"
        return None

    def judge(self, members: Mapping[str, Member], keys: Collection[str]) -> effects.Abandon | None:
        """None: it goes on with the header, for a node of its round is there or one has come back.

        Args:
            members: by incarnation.
            keys: nodes that have one in the store.
        """
        header, present = self.header, frozenset(members)
        known = [each.incarnation for each in self.found.assigned]
        returned = any(member.run == header.run for member in members.values())
        if not returned and not present.intersection(known):
            missing = tuple((each.node, each.incarnation) for each in self.found.assigned if each.node not in keys)
            return effects.Abandon(() if header.final else missing, queues=header.state == "succeeded")
        self.phase = None
        return None

    def abandon(self, now: float) -> float:
        """That run is over, and this master begins another; since when its nodes wait for it."""
        self.phase, header = None, self.header
        # Where that run had ended, this node came for the next one.
        return self._memory.began if header.final else self._memory.abandoned.setdefault(header.run, now)
