"""Which services an adapter wants on a node, and the line by which each hears of a round (pure)."""

import json
from collections.abc import Mapping

from .contract import Round, Service
from .environment import AdapterFailed
from .plain import Plain


def wanted(adapter: Plain, round: Round, *, first: bool) -> tuple[Service, ...]:
    """Those that are to run on a node in this round; `first`: rank 0 is on it.

    Raises ValueError with words where the round cannot be served, and AdapterFailed where the adapter is broken.
    """
    try:
        found = tuple(adapter.services(round))
    except ValueError:
        raise
    except Exception as error:  # code that is not ours
        raise AdapterFailed(
            f"the adapter {adapter.name} failed at the services of round {round.number}: {error!r}"
        ) from error
    return tuple(service for service in found if first or service.where == "every")


def line(round: Round, node_rank: int, tls: Mapping[str, str] | None = None) -> bytes:
    """One line of JSON, the newline included: the fields of `Round`, each peer an object, ranks by their order.

    `tls`: see `Service.between_nodes`; None: there is none.
    """
    peers = [{"host": peer.host, "ports": peer.ports, "role": peer.role, "node": peer.node} for peer in round.peers]
    told = {
        "job": round.job,
        "round": round.number,
        "world_size": round.world_size,
        "nodes": round.nodes,
        "master_addr": round.master_addr,
        "master_port": round.master_port,
        "restart_count": round.restart_count,
        "node_rank": node_rank,
        "peers": peers,
        **({"tls": dict(tls)} if tls is not None else {}),
    }
    return json.dumps(told, separators=(",", ":")).encode() + b"\n"
