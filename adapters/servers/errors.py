"""What a script that uses tables on servers can meet, and what stands for it on a server."""

from ...rendezvous.base.errors import ElasticRunError


class ServersError(ElasticRunError, public=True):
    """A table on the job's servers cannot be used."""


class TableMisused(ServersError, ValueError, public=True):
    """A table is declared or used in a way that cannot be; the message says what to change."""


class ServerGone(ServersError, ConnectionError, public=True):
    """A server's connection is lost, or it does not answer."""


class ServerFull(ServersError, MemoryError, public=True):
    """The rows that are wanted do not fit into a server's memory. The same push goes first, the next time."""


class PushRefused(ServersError, RuntimeError, public=True):
    """A push is of records that are not this worker's any more, or that do not follow those before them."""


class RecordsRefused(Exception):
    """On a server: nothing of the push may be applied; the message says why."""
