"""torch's own dynamic rendezvous with its state in etcd v3: a plug-in of torchrun's.

torch has the semantics: it decides who is in a round and who is dead. Here is what it asks of a backend, to compare and
set one key, a c10d store for the agents, and the end of both when the job has ended.

What torch writes is a pickle, which it reads again in every agent: who may write to this etcd may run code in them.
"""

import functools
import logging
import os
from collections.abc import Callable, Mapping
from pathlib import Path

from torch.distributed.elastic.rendezvous import (
    RendezvousError,
    RendezvousHandler,
    RendezvousParameters,
    RendezvousStateError,
)
from torch.distributed.elastic.rendezvous.dynamic_rendezvous import RendezvousBackend, Token, create_handler

from ...rendezvous.host.own_files import read_own
from ...rendezvous.store.contract import Compare, KeyValue
from ...rendezvous.store.endpoint import parse_endpoints
from ...rendezvous.store.etcd.etcd_store import Credentials, EtcdStore, Tls
from .etcd_c10d_store import EtcdC10dStore
from .etcd_connection import Connection
from .torchrun_plugin import NAME

_log = logging.getLogger(__name__)

TTL_SECONDS = 7200
"""What is written lives so long without another write, as with torch's own backend for etcd. Agents write every 5 s."""

CLOSED_SECONDS = 60
"""The state lives so long after the end of a job, for agents that have not seen it. Then the id is free again."""

SHARED_STORE = "TORCH_DISABLE_SHARE_RDZV_TCP_STORE"
"""torch's variable. With a shared store, an agent that is not rank 0 keeps the address that it learnt in its first
round, and goes there in all others."""

_MARK = b"elastic-run torchrun 1\n"
_FILES: Mapping[str, tuple[str, str]] = {
    "ca": ("ca_cert", "cacert"),
    "cert": ("ssl_cert", "cert"),
    "key": ("ssl_cert_key", "key"),
}


class EtcdBackend(RendezvousBackend):
    """The state under one key. Its token is the key's mod revision.

    Args:
        connection: to etcd.
        run_id: of the job.
    """

    def __init__(self, connection: Connection, run_id: str) -> None:
        if not run_id:
            raise ValueError("the run id is empty: give one with --rdzv-id")
        self._connection = connection
        self._root = f"/elastic-run/torchrun/{run_id}"
        self._key = f"{self._root}/state"
        self._made = 0

    @property
    def name(self) -> str:
        return NAME

    @property
    def prefix(self) -> str:
        """Of the keys that belong to this state: another one with the same run id has others."""
        return f"{self._root}/{self._made}"

    def get_state(self) -> tuple[bytes, Token] | None:
        found = self._connection.call(self._connection.store.get(self._key))
        return None if found is None else self._read(found)

    def set_state(self, state: bytes, token: Token | None = None) -> tuple[bytes, Token, bool] | None:
        if token is not None and not isinstance(token, int):
            found = self.get_state()
            return None if found is None else (*found, False)
        value = _MARK + state
        compare = Compare(self._key, token or 0, "mod")
        result = self._connection.call(self._connection.write([compare], {self._key: value}))
        if result.succeeded:
            self._made = self._made if token else result.revision
            return state, result.revision, True
        (current,) = result.current
        # It may be our own: of an attempt whose answer was lost.
        return None if current is None else (*self._read(current), current.value == value)

    def expire(self, seconds: int = CLOSED_SECONDS) -> None:
        """Has the state end so long after its last change."""
        self._connection.call(self._expire(seconds))

    def close(self) -> None:
        """Closes the connection."""
        self._connection.close()

    async def _expire(self, seconds: int) -> None:
        found = await self._connection.store.get(self._key)
        if found is not None:
            compare = Compare(self._key, found.mod_revision, "mod")
            await self._connection.write([compare], {self._key: found.value}, seconds)

    def _read(self, found: KeyValue) -> tuple[bytes, Token]:
        if not found.value.startswith(_MARK):
            raise RendezvousStateError(f"{self._key} in etcd holds no state of a rendezvous: delete it")
        self._made = found.create_revision
        return found.value[len(_MARK) :], found.mod_revision


def _shut_down(inner: Callable[[], bool], backend: EtcdBackend) -> bool:
    """What `inner` of torch's does, and then the id of the job is free again in a minute."""
    try:
        done = inner()
        if done:
            backend.expire()
        return done
    except RendezvousError as error:
        _log.warning("%s: the id of the job is free again in %g h", error, TTL_SECONDS / 3600)
        return False
    finally:
        backend.close()


def make(parameters: RendezvousParameters) -> RendezvousHandler:
    """The handler of one agent, which has reached etcd. Raises ValueError for a wrong option, else torch's errors.

    It is torch's dynamic handler, but that its end is also that of the backend.
    """
    seconds = parameters.get_as_int("read_timeout", 60) or 0
    if seconds <= 0:
        raise ValueError("--rdzv-conf: read_timeout must be a positive number of seconds")
    endpoints = parse_endpoints(parameters.endpoint)
    tls = _tls(parameters, any(endpoint.tls for endpoint in endpoints))
    user = _user(parameters, os.environ)
    if user and tls is None and not all(endpoint.loopback for endpoint in endpoints):
        raise ValueError(
            "--rdzv-conf: without TLS the password goes over the network for everybody to read: write https:// before "
            "the endpoint, or cacert=FILE"
        )
    addresses = [str(endpoint) for endpoint in endpoints]
    os.environ.setdefault(SHARED_STORE, "1")
    connection = Connection(
        lambda: EtcdStore(addresses, deadline=seconds, tls=tls, credentials=user), seconds=seconds, ttl=TTL_SECONDS
    )
    try:
        backend = EtcdBackend(connection, parameters.run_id)
        backend.get_state()
        store = EtcdC10dStore(connection, lambda: backend.prefix)
        handler = create_handler(store, backend, parameters)
        handler.shutdown = functools.partial(_shut_down, handler.shutdown, backend)
        return handler
    except BaseException:
        connection.close()
        raise


def _tls(parameters: RendezvousParameters, wanted: bool) -> Tls | None:
    protocol = parameters.get("protocol", "")
    if protocol not in ("", "http", "https"):
        raise ValueError(f"--rdzv-conf: protocol={protocol} is neither http nor https")
    files = {each: parameters.get(name) or parameters.get(other) for each, (name, other) in _FILES.items()}
    if protocol == "http" and (wanted or any(files.values())):
        raise ValueError("--rdzv-conf: protocol=http contradicts the certificates or the endpoint: leave it out")
    return Tls(**files) if wanted or protocol == "https" or any(files.values()) else None


def _user(parameters: RendezvousParameters, environ: Mapping[str, str]) -> Credentials | None:
    user: str = parameters.get("user", "")
    if not user:
        return None
    if user.startswith("@"):
        user, _, password = read_own(Path(user[1:]), shared=True).strip().partition(":")
    else:
        password = environ.get("ELASTIC_RUN_ETCD_PASSWORD", "")
    if not (user and password):
        raise ValueError(
            "--rdzv-conf: user has no password: put it into ELASTIC_RUN_ETCD_PASSWORD, or write user=@FILE for a file "
            "with the line user:password"
        )
    return Credentials(user, password)
