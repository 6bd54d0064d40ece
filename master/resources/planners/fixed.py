"""A job that keeps the number of nodes that it begins with, or has the one that its user names (pure)."""

from ....rendezvous.base.plural import plural
from . import SizeChoice, SizesSeen


class Fixed:
    """Args: nodes: how many; empty: as many as it begins with."""

    steps_alone, cap = False, 1.0

    def __init__(self, nodes: str = "") -> None:
        if nodes and not (nodes.isdecimal() and int(nodes)):
            raise ValueError(f"nodes={nodes} is no number of nodes")
        self._nodes = int(nodes or 0)

    def choose(self, seen: SizesSeen) -> SizeChoice:
        """The measured size that is nearest to the number."""
        nodes = min(seen.rates, key=lambda size: abs(size - (self._nodes or seen.nodes)))
        return SizeChoice(nodes, f"{plural(nodes, 'node')}, as its user says")

    def explore(self, seen: SizesSeen) -> SizeChoice | None:
        """The number itself."""
        nodes = min(seen.sizes, key=lambda size: abs(size - (self._nodes or seen.nodes)))
        return SizeChoice(nodes, f"{plural(nodes, 'node')}, as its user says") if nodes not in seen.rates else None

    def moves(self, seen: SizesSeen, best: SizeChoice) -> bool:
        """Always."""
        return best.nodes != seen.nodes
