"""What a node keeps from one leadership to the next: evidence that is not had twice, and since when it waits."""

import math
from dataclasses import dataclass, field

from ...rendezvous.node_reasons import NodeReason


@dataclass(slots=True)
class Memory:
    """A node's own; each of its leaderships continues with it, since one may end before it has acted on what it knows.

    Attributes:
        began: since when this node has renewed a lease, and knows whether the store was away (its clock, seconds).
            Where no round has begun since, it also is since when the node waits for one.
        dead: incarnations that are proven dead, each with the proof.
        abandoned: runs that were found without any of their nodes, and when.
        evicted: incarnations of whose eviction words may be in the store, the oldest first; the keys of a dictionary.
    """

    began: float = math.inf
    dead: dict[str, NodeReason] = field(default_factory=dict[str, NodeReason])
    abandoned: dict[str, float] = field(default_factory=dict[str, float])
    evicted: dict[str, None] = field(default_factory=dict[str, None])
