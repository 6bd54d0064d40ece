"""Where all workers of a round are: the hosts and ports by which frameworks have their workers find each other (pure).

A node holds ports for its workers where its framework's adapter asks for some, and says in its member value which. The
master writes who has which in a round once, beside the assignments, so that a node reads a few values of many
nodes each and not the value of every node. Where nobody asks, nothing is written.
"""

from collections.abc import Iterable, Sequence
from typing import Annotated

from .base.frozen import dataclass
from .member import MAX_WORKER_PORTS, MAX_WORKERS, Member
from .ranks import PORT_SETS, Assignment
from .wire.fields import Name, Number, Port
from .wire.values import Count, Within

CHUNK = 75
"""Nodes in one value: with the longest names and the most ports it is still below what a store takes."""


@dataclass(frozen=True, slots=True)
class NodePeers:
    """The workers of one node, with the ranks `first_rank .. first_rank + nproc - 1`.

    Attributes:
        host: where they are.
        role: theirs.
        ports: the same number for each of them, in the order of their ranks; what is left over is nobody's.
    """

    host: Name
    role: Name
    first_rank: Number
    nproc: Annotated[int, Within(1, MAX_WORKERS)]
    ports: Annotated[tuple[Port, ...], Count(MAX_WORKER_PORTS // PORT_SETS)]


@dataclass(frozen=True, slots=True)
class Peers:
    """Some nodes of a round, in rank order."""

    round: Number
    nodes: Annotated[tuple[NodePeers, ...], Count(CHUNK)]


def chunks(round_number: int, nodes: Sequence[Member], assignments: Sequence[Assignment]) -> tuple[Peers, ...]:
    """What is published of a round whose nodes have these assignments; empty where no node holds ports."""
    if not any(member.worker_ports for member in nodes):
        return ()
    peers = [
        NodePeers(
            member.host,
            assignment.role,
            assignment.first_rank,
            assignment.nproc,
            ports_of(assignment.port_set, member.worker_ports),
        )
        for member, assignment in zip(nodes, assignments, strict=True)
    ]
    return tuple(Peers(round_number, tuple(peers[start : start + CHUNK])) for start in range(0, len(peers), CHUNK))


def ports_of(port_set: int, held: Sequence[int]) -> tuple[int, ...]:
    """The ports of that set, of those that a node holds."""
    size = len(held) // PORT_SETS
    start = port_set * size
    return tuple(held[start : start + size])


def joined(found: Iterable[Peers], world_size: int, each: int) -> tuple[NodePeers, ...]:
    """All nodes of a round, in rank order. Raises ValueError where a worker is missing, or one of its `each` ports."""
    peers = sorted((peer for each in found for peer in each.nodes), key=lambda peer: peer.first_rank)
    rank = 0
    for peer in peers:
        if peer.first_rank != rank or len(peer.ports) < peer.nproc * each:
            break
        rank += peer.nproc
    if rank != world_size:
        raise ValueError(f"of {world_size} workers only the first {rank} are described")
    return tuple(peers)
