"""What an agent tells a worker of the job's servers, and a server that it keeps (values; loads no numpy)."""

from ...master.servers.slot_table import SlotTable
from ...rendezvous.base.frozen import dataclass
from ...rendezvous.identity.servers import ServersTls
from ...rendezvous.wire.fields import Name

UNREADABLE = "the rows of a checkpoint cannot be read"
"""With these words a server ends that cannot begin with the checkpoint that it is told."""


@dataclass(frozen=True, slots=True)
class JobServers:
    """The job's servers, for a worker.

    Attributes:
        table: the newest that its agent has; of version 0 before the first.
        node: the worker's own: the servers that run there have their local sockets where it can reach them.
        tls: for servers on other nodes; None: connections are as they are (one node, or --insecure).
    """

    table: SlotTable
    node: Name
    tls: ServersTls | None = None


@dataclass(frozen=True, slots=True)
class ServerOrders:
    """One line of JSON on a server's stdin; another follows when the table has changed.

    Attributes:
        table: the newest.
        incarnation: the server's own.
        host, bind: how other nodes call this machine, and the address to listen at ("": every one); None: the job has
            one node, and nobody comes by TCP.
        tls: for connections to and from other nodes; None: they are as they are.
    """

    table: SlotTable
    incarnation: Name
    host: Name = ""
    bind: str | None = None
    tls: ServersTls | None = None
