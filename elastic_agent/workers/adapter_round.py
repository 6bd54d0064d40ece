"""A round and its workers, as the adapter of their framework is told of them (pure)."""

from collections.abc import Iterable, Mapping

from ...adapters import contract
from ...adapters.environment import WorkerSettings
from ...rendezvous.base.frozen import dataclass
from ...rendezvous.header import Header
from ...rendezvous.peers import NodePeers
from ...rendezvous.ranks import Assignment


@dataclass(frozen=True, slots=True)
class RoundEntry:
    """A round, and this node's part in it. `nodes`, `peers`: where all workers are, if their framework asks for it."""

    header: Header
    assignment: Assignment
    nodes: tuple[NodePeers, ...] = ()
    peers: tuple[contract.Peer, ...] = ()


def round_of(settings: WorkerSettings, entry: RoundEntry, services: Mapping[str, str]) -> contract.Round:
    """The round that is entered; `services`: what each of its services has said."""
    header, assignment = entry.header, entry.assignment
    return contract.Round(
        job=settings.job,
        number=header.number,
        world_size=assignment.world_size,
        nodes=assignment.group_size,
        master_addr=header.master_addr,
        master_port=header.master_port,
        restart_count=header.restart_count,
        max_restarts=header.max_restarts,
        signals=settings.signal_names,
        peers=entry.peers,
        services=services if header.number else {},
    )


def worker_of(
    settings: WorkerSettings, assignment: Assignment, local_rank: int, first_local: int, error_file: str
) -> contract.Worker:
    """The worker of a local rank; `first_local`: the one that has this node's lowest rank."""
    place = (local_rank - first_local) % assignment.nproc
    return contract.Worker(
        rank=assignment.first_rank + place,
        local_rank=local_rank,
        local_world_size=assignment.nproc,
        node=settings.node,
        node_rank=assignment.group_rank,
        role=assignment.role,
        role_rank=assignment.role_first_rank + place,
        role_world_size=assignment.role_world_size,
        error_file=error_file,
        own_device=settings.own_device,
    )


def list_peers(nodes: Iterable[NodePeers], each: int) -> tuple[contract.Peer, ...]:
    """Each worker's host and its `each` ports, of nodes in rank order."""
    found: list[contract.Peer] = []
    for number, node in enumerate(nodes):
        for local in range(node.nproc):
            ports = node.ports[local * each : (local + 1) * each]
            found.append(contract.Peer(node.first_rank + local, node.host, ports, node.role, number))
    return tuple(found)


def rank_to_come(settings: WorkerSettings, header: Header, nproc: int) -> Assignment:
    """What a node without a rank tells its workers until it has one: they come after all others."""
    return Assignment(
        0,
        settings.node,
        "",
        group_rank=header.nodes,
        group_size=header.nodes + 1,
        first_rank=header.world_size,
        nproc=nproc,
        world_size=header.world_size + nproc,
        role_first_rank=header.world_size,
        role_world_size=header.world_size + nproc,
        role=settings.role,
    )
