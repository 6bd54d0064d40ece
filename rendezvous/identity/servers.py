"""What a job's parameter servers prove themselves with, and the workers that ask them.

Agents know the secret and issue both; servers and workers have a certificate with its key, and load no `cryptography`.
The authority is of one job alone: what belongs to another job, to an agent, an observer or the store is refused in the
handshake, as is a worker that would serve; and nothing else trusts it.
"""

import ssl
from typing import TYPE_CHECKING

from ..base.frozen import dataclass, field
from .pem import Pem, load_pair, make_context

if TYPE_CHECKING:
    from .contexts import Identity

VALID_SECONDS = 3 * 86_400.0
"""From a certificate's making on; a connection that is there outlives it."""

RENEW_SECONDS = 86_400.0
"""The age at which an agent issues another."""


@dataclass(frozen=True, slots=True)
class ServersTls:
    """The certificate of one server, or of one node's workers, as it crosses to their processes.

    Attributes:
        authority: of the job's servers, in PEM, as the following.
        certificate, key: of the holder.
    """

    authority: Pem
    certificate: Pem
    key: Pem = field(repr=False)

    def make_server(self) -> ssl.SSLContext:
        """For a server that listens: it admits servers and workers of this job. Raises OSError, ValueError."""
        context = make_context(ssl.PROTOCOL_TLS_SERVER, self.authority, self.certificate + self.key)
        context.num_tickets = 0  # a session that is resumed would outlive its certificate
        return context

    def make_client(self) -> ssl.SSLContext:
        """For who dials a server, with `server_hostname=identity.SERVER_NAME`. Raises OSError, ValueError."""
        return make_context(ssl.PROTOCOL_TLS_CLIENT, self.authority, self.certificate + self.key)

    def renew(self, *contexts: ssl.SSLContext) -> None:
        """Has contexts that were made of an older one use this one from the next handshake on. Raises OSError."""
        for context in contexts:
            load_pair(context, self.certificate + self.key)


class ServersIssuer:
    """What an agent gives to the servers and workers of its node, issued anew when it is a day old.

    Args:
        identity: the agent's.
        job: the job's id.

    Raises NoIdentity where no secret protects the job.
    """

    def __init__(self, identity: "Identity", job: str) -> None:
        from .secret import NoIdentity

        if identity.secret is None:
            raise NoIdentity(
                "--tls-ca's authority alone protects this job, and it issues nothing to workers: only a job with a "
                "secret has servers on several nodes"
            )
        self._secret = identity.secret
        self._job = job
        self._issued: tuple[float, ServersTls, ServersTls] | None = None

    def certificates(self, now: float) -> tuple[ServersTls, ServersTls]:
        """A server's and a worker's; the same objects until they are issued anew.

        Args:
            now: seconds since the epoch.

        The first call loads `cryptography`, which takes some 0.1 s.
        """
        if self._issued is None or not abs(now - self._issued[0]) < RENEW_SECONDS:
            from .authority import Authority

            authority = Authority.of_servers(self._secret, self._job)
            issued = authority.issue("server", VALID_SECONDS, now), authority.issue_to_worker(VALID_SECONDS, now)
            server, worker = (ServersTls(each.authority, each.certificate, each.key) for each in issued)
            self._issued = now, server, worker
        return self._issued[1:]
