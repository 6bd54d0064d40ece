"""What an observer holds: a certificate for one job, and where that job's agents listen.

The agents' port lets an observer ask for the job's status and nothing else (`rpc/server.py`). Everything else that
belongs to the job, its etcd above all, does not know the authority of observers.
"""

import ssl
from pathlib import Path
from typing import Annotated

from ..base.frozen import dataclass, field
from ..wire.fields import Name
from ..wire.values import Count, Malformed, decode, encode
from .contexts import Identity, written_pair
from .pem import Pem
from .secret import NoIdentity, read_private

MOST_AGENTS = 100
"""That a file names: one that still runs is enough, and tells of the others."""

DAY = 86_400.0


@dataclass(frozen=True, slots=True)
class Credentials:
    """An observer's.

    Attributes:
        job: the id of the job that it may look at.
        agents: addresses of that job's agents, when the certificate was issued.
        until: when the certificate ends; seconds since the epoch.
        name: the host name in the agents' certificates; empty where their authority vouches for any host.
        authority: that of the agents, in PEM, as the following.
        certificate, key: the observer's own.
    """

    job: Name
    agents: Annotated[tuple[Name, ...], Count(MOST_AGENTS)]
    until: float
    name: Name
    authority: Pem
    certificate: Pem
    key: Pem = field(repr=False)

    @property
    def client(self) -> ssl.SSLContext:
        """To dial an agent with. Raises NoIdentity."""
        parts = {"authority": self.authority, "certificate": self.certificate, "key": self.key, "name": self.name}
        try:
            return written_pair(parts)[1]
        except (OSError, ValueError) as error:  # an SSLError is an OSError
            raise NoIdentity(f"the observer's certificate cannot be used: {error}") from None

    @property
    def text(self) -> str:
        """As it stands in a file."""
        return f"{encode(self).decode()}\n"


def issue(identity: Identity, job: str, agents: tuple[str, ...], seconds: float, now: float) -> Credentials:
    """For an observer of the job of that id. Raises NoIdentity, OSError."""
    if identity.secret is None:
        raise NoIdentity("--tls-ca's authority alone protects this job; only a job with a secret has observers")
    from .authority import Authority

    issued, spoken = Authority.of_observers(identity.secret).issue_to_observer(job, seconds, now), identity.written()
    return Credentials(
        job, agents[:MOST_AGENTS], issued.until, spoken["name"], spoken["authority"], issued.certificate, issued.key
    )


def read_credentials(path: Path, now: float) -> Credentials:
    """What `Credentials.text` was written to. Raises NoIdentity."""
    source = f"--credentials={path}"
    try:
        found = decode(Credentials, read_private(path, source).encode())
    except Malformed as error:
        raise NoIdentity(f"{source} holds no credentials that elastic-run credentials wrote: {error}") from None
    if now >= found.until:
        days = (now - found.until) / DAY
        raise NoIdentity(f"{source} ended {days:.1f} days ago: have new ones made with elastic-run credentials")
    return found
