"""Who attacks a job: on the network, without its secret."""

import contextlib
import ssl
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Protocol

from elastic_run.rendezvous.base.errors import StoreError
from elastic_run.rendezvous.identity import SERVER_NAME
from elastic_run.rendezvous.identity.contexts import Identity
from elastic_run.rendezvous.identity.secret import new_secret
from elastic_run.rendezvous.store.contract import Put
from elastic_run.rendezvous.store.etcd.etcd_store import EtcdStore, Proof

SECONDS = 15.0
"""For a store that lets nobody in to say so, and for one that does to answer, on a busy machine."""


class Proves(Protocol):
    """What somebody proves himself with; see `Identity`."""

    @property
    def pem(self) -> tuple[bytes, bytes, bytes]:
        """The authority, the key and the certificate."""
        ...

    @property
    def client(self) -> ssl.SSLContext:
        """For an agent's port."""
        ...


@dataclass(frozen=True, slots=True)
class Stranger:
    """One who attacks.

    Attributes:
        name: in words.
        identity: what it proves itself with; None: nothing, and it speaks no TLS.
    """

    name: str
    identity: Proves | None

    @property
    def proof(self) -> Proof | None:
        """For a store."""
        identity = self.identity
        return Proof(lambda: identity.pem, SERVER_NAME) if identity is not None else None

    @property
    def client(self) -> ssl.SSLContext | None:
        """For an agent's port; it believes whoever answers."""
        if self.identity is None:
            return None
        context = self.identity.client
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        return context

    @contextlib.asynccontextmanager
    async def at(self, endpoint: str, seconds: float = SECONDS) -> AsyncIterator[EtcdStore]:
        """The store, as it is for this one."""
        store = EtcdStore([endpoint], deadline=seconds, tls=self.proof)
        try:
            yield store
        finally:
            await store.close()

    async def puts(self, endpoint: str, key: str, value: bytes) -> bool:
        """Whether it can write that."""
        async with self.at(endpoint) as store:
            try:
                await store.txn([], [Put(key, value)])
            except StoreError:
                return False
            return True


def plain() -> Stranger:
    """Speaks no TLS."""
    return Stranger("who has no certificate", None)


def another_job() -> Stranger:
    """Has a secret, of another job."""
    return Stranger("who has another job's secret", Identity(new_secret()))


def observer(identity: Proves) -> Stranger:
    """Has stolen what an observer of the job has."""
    return Stranger("who has an observer's credentials", identity)


def insider(identity: Identity) -> Stranger:
    """Knows the secret."""
    return Stranger("who knows the secret", identity)
