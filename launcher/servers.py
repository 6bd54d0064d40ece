"""The job's parameter servers, as the launcher hands them to the agent and to the master, which know of none."""

from functools import partial
from typing import TYPE_CHECKING

from ..elastic_agent.hosting import Host
from ..elastic_agent.servers.server_host import ServerHost
from ..master.beside import BesideMaster
from ..master.servers.placement import ServersWanted
from ..master.servers.slot_keeper import SlotKeeper
from ..rendezvous.identity.servers import ServersIssuer
from .settings import ServerCount

if TYPE_CHECKING:
    from ..rendezvous.identity.contexts import Identity


def make_keepers(servers: ServerCount, nodes: int) -> tuple[BesideMaster, ...]:
    """What says which server has which ids, where the job's master runs; `nodes`: the fewest that the job needs."""
    return (SlotKeeper(ServersWanted(servers.least, servers.most, servers.replicas, nodes)),)


def host_servers(job: str, identity: "Identity | None") -> Host:
    """What keeps the servers of one node.

    Args:
        job: the job's id.
        identity: the agent's; None: nobody proves anything.

    Raises NoIdentity where it can issue nothing to servers.
    """
    certificates = ServersIssuer(identity, job).certificates if identity else None
    return partial(ServerHost, _certificates=certificates)
