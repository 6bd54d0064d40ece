"""Who belongs to a job: one secret, what is derived from it, and the TLS contexts of every wire.

    secret.py       the secret and where it comes from: a file, the environment, a line to join; no library
    authority.py    derives the job's certificate authorities from the secret, and issues certificates (`cryptography`)
    observer.py     what an observer of one job holds, who can change nothing, and the file that it is kept in
    servers.py      what a job's parameter servers and the workers that ask them hold
    contexts.py     what one process holds: its certificate, renewed before it ends, and its TLS contexts
    pem.py          TLS contexts of a certificate that another process has issued
    sealing.py      encrypts what is written into a store that others may read (`cryptography`)
    scrub.py        overwrites a secret in this process's own argument and environment blocks

Every process that knows the secret rebuilds the same authorities and issues its own certificate. A process that does
not know the secret can make none, so every wire is closed to it. An observer has been given a certificate, of an
authority that only the agents' port trusts, and asks there what is open to observers. A worker has one of an authority
that only its job's parameter servers trust. Nothing here knows of the RPC.
"""

from collections.abc import Iterable, Mapping
from typing import cast

SERVER_NAME = "elastic-run"
"""The name in every certificate that a secret's authority issues, whatever the machine's address is."""

MEMBER_FILES = ("ca.pem", "member.pem")
"""What an embedded etcd reads: the authority's certificate; and its own with its key, which are replaced as one."""

OBSERVERS = "observers of "
"""Begins the name of the authority that vouches for observers; the secret's fingerprint follows."""


def job_mark(job: str) -> str:
    """What stands for a job's id in a certificate of an observer: the id has no bound that a certificate would take."""
    import hashlib  # here, because it loads OpenSSL, and a job of one node has no use for that

    return hashlib.sha256(job.encode(errors="surrogateescape")).hexdigest()


def observed(certificate: Mapping[str, object] | None) -> str | None:
    """The mark of the job that the holder of this certificate may look at; None for one who belongs to the job (pure).

    Args:
        certificate: verified, as `ssl` gives it; None or empty: the peer was not asked for one.
    """
    if not certificate or not _name(certificate, "issuer", "commonName").startswith(OBSERVERS):
        return None
    return _name(certificate, "subject", "organizationalUnitName")


def _name(certificate: Mapping[str, object], whose: str, part: str) -> str:
    names = cast(Iterable[Iterable[tuple[str, str]]], certificate.get(whose, ()))
    return next((value for each in names for name, value in each if name == part), "")
