"""The job's parameter servers, as the launcher hands them to the agent and to the master, which know of none."""

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import quote

from ..elastic_agent.hosting import Host
from ..elastic_agent.servers.server_host import ServerHost
from ..elastic_agent.servers.server_process import MODULE
from ..master.beside import BesideMaster
from ..master.servers.checkpoint_folder import CheckpointFolder
from ..master.servers.placement import ServersWanted
from ..master.servers.slot_keeper import SlotKeeper
from ..rendezvous.identity.servers import ServersIssuer
from .settings import ServerCount

if TYPE_CHECKING:
    from ..rendezvous.identity.contexts import Identity


def make_keepers(servers: ServerCount, job: str, nodes: int) -> tuple[BesideMaster, ...]:
    """What says which server has which ids, where the job's master runs; `nodes`: the fewest that the job needs."""
    wanted = ServersWanted(servers.least, servers.most, servers.replicas, nodes)
    folder = CheckpointFolder(Path(servers.checkpoint), job) if servers.checkpoint else None
    return (SlotKeeper(wanted, checkpoints=(folder, servers.every) if folder else None),)


def host_servers(servers: ServerCount, job: str, identity: "Identity | None") -> Host:
    """What keeps the servers of one node.

    Args:
        servers: as the job was asked for them.
        job: the job's id.
        identity: the agent's; None: nobody proves anything.

    Raises NoIdentity where it can issue nothing to servers.
    """
    certificates = ServersIssuer(identity, job).certificates if identity else None
    words = [f"--checkpoints={servers.checkpoint}", f"--job={job}"] if servers.checkpoint else []
    words += [f"--memory={servers.memory}"] if servers.memory else []
    words += [f"--disk={servers.disk}", f"--disk-size={servers.disk_size}"] if servers.disk else []
    logs = Path(servers.log) / quote(job, safe="") if servers.log else None
    return partial(ServerHost, _certificates=certificates, _arguments=("-m", MODULE, *words), _logs=logs)
