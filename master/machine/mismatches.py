"""Nodes under this job's id that were started with something else: they are refused, or told of.

A part of the controller (pure).
"""

from collections.abc import Iterable

from ...rendezvous.header import Eviction
from ...rendezvous.member import Fingerprint, Member, describe_difference, describe_own
from ...rendezvous.node_reasons import OtherCommand, cut
from ...rendezvous.round import Seen
from . import effects
from .effects import Effect


class Mismatches:
    """Of one leadership.

    Args:
        fingerprint: what its nodes were started with.

    Attributes:
        fingerprint: that of the header, where there is one.
        nodes: that were started with something else, in order.
    """

    def __init__(self, job: str, fingerprint: Fingerprint) -> None:
        self.fingerprint = fingerprint
        self.nodes: dict[str, None] = {}
        self._job = job
        self._differing = set[str]()  # incarnations that may be so, and were told of

    def compare(self, member: Member) -> None:
        """Whether the member was started with something else."""
        self.nodes.pop(member.node, None)
        if member.fingerprint != self.fingerprint:
            self.nodes[member.node] = None

    def adopt(self, fingerprint: Fingerprint, members: Iterable[Member]) -> None:
        """Goes on with the fingerprint of an earlier master's header."""
        self.fingerprint = fingerprint
        for member in members:
            self.compare(member)

    def refuse_next(self, seen: Iterable[Seen]) -> list[Effect]:
        """Has the next of them evicted, if one of these nodes is one; it is registered no more then."""
        todo, ours = list[Effect](), self.fingerprint
        registered = {one.member.node: one for one in seen if not one.gone} if self.nodes else {}
        for node in list(self.nodes):
            one = registered.get(node)
            if one and (difference := describe_difference(one.member.fingerprint, ours)):
                word = Eviction(OtherCommand(self._job, cut(difference)), final=True)
                line = f"refuses node {node}: {describe_difference(ours, one.member.fingerprint)}"
                return [*todo, effects.Refuse(node, one.order, one.member.incarnation, word, line)]
            if one and one.member.incarnation not in self._differing:
                self._differing.add(one.member.incarnation)
                own = describe_own(ours, one.member.fingerprint)
                todo.append(effects.Say(f"node {node} has the job's --rdzv-id and may differ: {own}"))
            del self.nodes[node]
        return todo
