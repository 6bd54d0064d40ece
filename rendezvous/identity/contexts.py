"""What one process holds to prove itself: a certificate that it renews in time, and the TLS contexts made of it."""

import contextlib
import hashlib
import ssl
import time
from asyncio.sslproto import SSLProtocol
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

from ..base.frozen import dataclass, field
from ..host.own_files import replace_own
from . import MEMBER_FILES, SERVER_NAME
from .pem import load_pair, make_context, refuse_passphrase
from .secret import GIVE_IT, NoIdentity, Secret, read_private

AGENT_SECONDS = 3 * 86_400.0
"""For which an agent's certificate is valid."""

MEMBER_SECONDS = 90 * 86_400.0
"""For which the certificate of an embedded etcd is valid: it may run for weeks beyond its last agent here."""

RENEW_SECONDS = 86_400.0
"""An agent's certificate is replaced at this age; a member's too, while an agent of its machine runs."""

BUFFER_BYTES = 32 * 1024
"""Of each TLS connection: two records. asyncio's own 256 KiB are 2.5 GB for the master of ten thousand nodes."""

LOOK_SECONDS = 60.0
"""Between two looks at whether a certificate has to be renewed."""


@dataclass(frozen=True, slots=True)
class Issued:
    """A certificate with its key and authority, in PEM.

    Attributes:
        at, until: when it was made, and when it ends; seconds since the epoch.
        authority: that of the nodes.
        observers: the authority of the job's observers; empty where its holder is asked nothing by them.
    """

    at: float
    until: float
    authority: str
    certificate: str
    key: str = field(repr=False)
    observers: str = ""

    def fresh(self, now: float) -> bool:
        """It is young enough to be used by a process that begins now."""
        return self.at - RENEW_SECONDS <= now < self.at + RENEW_SECONDS


class Identity:
    """Proves that this process knows the job's secret, or has a certificate of the user's own authority.

    `server` and `client` stay the same objects when the certificate is renewed.

    Args:
        secret: the job's; None where `own` and a store of the user's own leave nothing for it to do.
        cache: the folder in which a certificate is kept for the next process of this user; None: none is kept.
        own: certificates of the user's own, for the agents' port.
        role: what this process is; stands in its certificate, and limits nothing: it could issue itself another.

    Raises NoIdentity where the user's own certificates cannot be used.

    Attributes:
        server: TLS 1.3 for who listens; a peer must have a certificate, too: a node's, or an observer's of this secret.
        client: TLS 1.3 for who dials.
        secret: as given.
        cache: as given: where the user's own secret lies, if that is the one.
        store: for who asks an embedded etcd; None where there is no secret.
        fingerprint: tells this job's secret from others, and is no secret; empty where there is none.
    """

    def __init__(
        self, secret: Secret | None, *, cache: Path | None = None, own: "OwnFiles | None" = None, role: str = "agent"
    ) -> None:
        SSLProtocol.max_size = BUFFER_BYTES  # asyncio has no other way to say it
        self.secret = secret
        self.cache = cache
        self._own = own
        self._role = role
        self._issued: Issued | None = None
        self.fingerprint = secret.fingerprint if secret is not None else ""
        self.server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self.client = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        self.store: ssl.SSLContext | None = None
        for context in (self.server, self.client):
            context.minimum_version = ssl.TLSVersion.TLSv1_3
            context.verify_mode = ssl.CERT_REQUIRED
        self.server.num_tickets = 0  # a session that is resumed would outlive its certificate
        if own is not None:
            own.load(self.server, self.client)
        if secret is not None:
            # etcd's port: at least 1.2, because not every Go that builds etcd has 1.3.
            self.store = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
            self.store.minimum_version = ssl.TLSVersion.TLSv1_2
            self._issued = self._obtain(secret, self._role, AGENT_SECONDS, time.time())
            for context in self._issued_to():
                context.load_verify_locations(cadata=self._issued.authority)
                _load(context, self._issued)
            self.server.load_verify_locations(cadata=self._issued.observers)

    def _issued_to(self) -> tuple[ssl.SSLContext, ...]:
        """The contexts with a certificate that the secret's authority has issued."""
        ours = (self.server, self.client) if self._own is None else ()
        return (*ours, self.store) if self.store is not None else ours

    @property
    def pem(self) -> tuple[bytes, bytes, bytes]:
        """The authority, the key and the certificate, as grpc takes them, and as they are now."""
        issued = self._certificate()
        return issued.authority.encode(), issued.key.encode(), issued.certificate.encode()

    def written(self) -> Mapping[str, str]:
        """What `server` and `client` are made of, for `written_pair` in another process. Raises OSError."""
        if self._own is not None:
            return self._own.written()
        issued = self._certificate()
        return {
            "authority": issued.authority,
            "certificate": issued.certificate,
            "key": issued.key,
            "name": SERVER_NAME,
        }

    def _certificate(self) -> Issued:
        if self._issued is None:
            raise ValueError("there is no secret, and so no certificate that it has issued")
        return self._issued

    def renew(self, now: float) -> bool:
        """Replaces the certificate where it is old, and loads files of the user's that have changed.

        Returns whether anything was replaced. Raises NoIdentity, OSError where the user's files cannot be used now;
        the certificate that was there stays in use.
        """
        renewed = False
        if self.secret is not None and self._issued is not None and not self._issued.fresh(now):
            self._issued = self._obtain(self.secret, self._role, AGENT_SECONDS, now)
            for context in self._issued_to():
                _load(context, self._issued)
            renewed = True
        if self._own is not None and self._own.changed():
            self._own.load(self.server, self.client)
            renewed = True
        return renewed

    def member_files(self, folder: Path, hosts: Callable[[], Iterable[str]], now: float) -> bool:
        """Writes what an embedded etcd of this machine needs into `folder`, unless all of it is there and fresh.

        Args:
            hosts: the names and addresses of the member, for the other members; none where it has no others.

        Returns whether files were written. etcd reads them again at each handshake. Raises OSError.
        """
        if self.secret is None:
            raise ValueError("only a secret can issue a member's certificate")
        age = folder / "issued"
        with contextlib.suppress(OSError, ValueError):
            fresh = abs(now - float(age.read_text("ascii"))) < RENEW_SECONDS
            if fresh and all((folder / name).exists() for name in MEMBER_FILES):
                return False
        issued = self._obtain(self.secret, "store", MEMBER_SECONDS, now, tuple(hosts()))
        folder.mkdir(mode=0o700, exist_ok=True)
        for name, text in zip(
            (*MEMBER_FILES, age.name),
            (issued.authority, issued.certificate + issued.key, f"{issued.at:.0f}\n"),
            strict=True,
        ):
            replace_own(folder / name, text)
        return True

    def vouches_for(self, folder: Path) -> bool:
        """There are files of a member in `folder`, of this secret's authority."""
        theirs = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        try:
            theirs.load_verify_locations(folder / MEMBER_FILES[0])
        except OSError:
            return False
        return self.store is not None and _authorities(self.store) == _authorities(theirs)

    def _obtain(self, secret: Secret, role: str, seconds: float, now: float, hosts: tuple[str, ...] = ()) -> Issued:
        """From the file beside the user's own secret, where it is fresh: loading `cryptography` takes a while."""
        path = self.cache / f"{role}.pem" if self.cache is not None and not hosts else None
        if path is not None:
            with contextlib.suppress(NoIdentity, ValueError):  # it is damaged: it is made anew
                issued = _read(read_private(path, str(path)), secret)
                if issued.fresh(now):
                    return issued
        from .authority import issued as issue

        issued = issue(secret, role, seconds, now, hosts)
        if path is not None:
            with contextlib.suppress(OSError):  # it is only kept to be quicker the next time
                replace_own(path, _written(issued, secret))
        return issued


def written_pair(written: Mapping[str, str]) -> tuple[ssl.SSLContext, ssl.SSLContext]:
    """The contexts of who listens and of who dials, made of `Identity.written`. Raises OSError, KeyError."""
    authority, pair = written["authority"], written["certificate"] + written["key"]
    server, client = (
        make_context(each, authority, pair) for each in (ssl.PROTOCOL_TLS_SERVER, ssl.PROTOCOL_TLS_CLIENT)
    )
    client.check_hostname = bool(written["name"])
    return server, client


def _authorities(context: ssl.SSLContext) -> list[object]:
    """Their names, which have the secret's fingerprint; of one authority the certificates differ."""
    return [each.get("subject") for each in context.get_ca_certs()]


def _load(context: ssl.SSLContext, issued: Issued) -> None:
    load_pair(context, issued.certificate + issued.key)


_HEAD = "elastic-run"
_PARTS = "-----BEGIN "


def _written(issued: Issued, secret: Secret) -> str:
    body = f"{issued.at:.0f} {issued.until:.0f}\n"
    body += issued.authority + issued.certificate + issued.key + issued.observers
    return f"{_HEAD} {_digest(body, secret)} {body}"


def _digest(body: str, secret: Secret) -> str:
    return hashlib.blake2b(body.encode(), key=secret.derived("kept certificate"), digest_size=16).hexdigest()


def _read(text: str, secret: Secret) -> Issued:
    """Raises ValueError for what is not as it was written, and for what another secret has issued."""
    name, digest, body = text.split(" ", 2)
    if name != _HEAD or digest != _digest(body, secret):
        raise ValueError("damaged, or another secret's")
    head, *blocks = body.split(_PARTS)
    at, until = head.split()
    authority, certificate, key, observers = (_PARTS + block for block in blocks)
    return Issued(float(at), float(until), authority, certificate, key, observers)


@dataclass(slots=True)
class OwnFiles:
    """Certificates of the user's own for the agents' port, in PEM: who has one of the authorities' may take part."""

    cert: Path
    key: Path
    authorities: Path
    _seen: tuple[tuple[int, int, int], ...] = ()

    def changed(self) -> bool:
        """A file is another than the one that was loaded."""
        return self._look() != self._seen

    def load(self, server: ssl.SSLContext, client: ssl.SSLContext) -> None:
        """Loads them into both contexts. Raises NoIdentity, and leaves the contexts as they were."""
        seen = self._look()
        try:
            trial = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)  # a pair that does not fit must not break what is in use
            trial.load_cert_chain(self.cert, self.key, refuse_passphrase)
            trial.load_verify_locations(self.authorities)
        except (OSError, ValueError) as error:  # an SSLError is an OSError
            raise NoIdentity(
                f"the certificates of --tls-cert={self.cert}, --tls-key={self.key} and --tls-ca={self.authorities} "
                f"cannot be used: {error}"
            ) from None
        for context in (server, client):
            context.check_hostname = False  # the authority vouches for the peer, whatever its address is
            context.load_cert_chain(self.cert, self.key, refuse_passphrase)
            context.load_verify_locations(self.authorities)
        self._seen = seen

    def written(self) -> Mapping[str, str]:
        """See `Identity.written`. Raises OSError."""
        authorities, cert, key = (path.read_text("ascii") for path in (self.authorities, self.cert, self.key))
        return {"authority": authorities, "certificate": cert, "key": key, "name": ""}

    def _look(self) -> tuple[tuple[int, int, int], ...]:
        found: list[tuple[int, int, int]] = []
        for path in (self.cert, self.key, self.authorities):
            try:
                status = path.stat()
            except OSError:
                found.append((0, 0, 0))
            else:
                found.append((status.st_ino, status.st_size, status.st_mtime_ns))
        return tuple(found)


NO_TLS = "it speaks no TLS"
CLOCKS = "the clocks of the two machines differ by more than a day; set them"


def in_words(error: ssl.SSLError) -> str:
    """What a failed handshake means, for a person; empty where it says nothing about the identity."""
    text = str(error).lower()
    if "not yet valid" in text:
        return f"its certificate is not valid yet: {CLOCKS}"
    if "expired" in text:
        return "its certificate has expired: the clocks of the two machines differ by more than a day, or it is stale"
    if any(sign in text for sign in ("unable to get local issuer", "self-signed", "self signed", "signature failure")):
        return f"this node's secret is not that of the other side: {GIVE_IT}"
    if (
        "bad certificate" in text
    ):  # the other side says so, whose own certificate this node has found to be of its secret
        return f"the other side does not accept this node's certificate, though both have one secret: {CLOCKS}"
    if any(sign in text for sign in ("unknown ca", "unknown_ca", "certificate required")):
        return f"the other side does not accept this node's secret: {GIVE_IT}"
    if any(sign in text for sign in ("wrong version", "record layer", "unknown protocol", "http request")):
        return NO_TLS
    return ""
