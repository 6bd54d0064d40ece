"""Which secret this node shares with the job's other nodes, and what it prints about that.

`rendezvous/identity` has the secret, the certificates and the TLS contexts; here is what the command line says of them.
"""

import hashlib
import os
import shlex
import sys
import time
from collections.abc import Callable, Iterable, Mapping, MutableMapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from ..rendezvous.host.process_limits import write_no_core
from ..rendezvous.identity.secret import (
    SCHEME,
    VARIABLE,
    Invitation,
    NoIdentity,
    own_folder,
    own_secret,
    parse_invitation,
    parse_secret,
    read_private,
)
from ..rendezvous.rpc.envelope import Security
from ..rendezvous.store.endpoint import Endpoint
from .errors import UsageError
from .settings import Options, Trust, join_words

if TYPE_CHECKING:
    from ..rendezvous.identity.contexts import Identity

INSECURE = (
    "--insecure: nothing of this job is encrypted or authenticated: anyone who reaches its ports can read, change and "
    "end it"
)

ON_COMMAND_LINE = (
    "the line to join stood on the command line, where until now every user of this machine could read its secret: "
    "give - in its place, and the line on standard input"
)

Say = Callable[[str], None]

_LONGEST_LINE = 4096


def trust_of(
    *, insecure: bool, join_file: str | None, own: Sequence[str | None], environ: Mapping[str, str], here: bool
) -> tuple[Trust, Invitation | None]:
    """What the flags and the environment say, and the line to join where there is one. Raises UsageError.

    Args:
        own: --tls-cert, --tls-key and --tls-ca.
        here: the files are of this machine; else they are not read.
    """
    given = [Path(text) for text in own if text is not None]
    if given and len(given) < len(own):
        raise UsageError("--tls-cert, --tls-key and --tls-ca belong together: give all three, or none")
    if insecure and (given or join_file):
        raise UsageError(
            "--insecure contradicts the certificates and the secret: leave out --insecure, or --tls-... and --join-file"
        )
    invitation: Invitation | None = None
    if here and not insecure:
        try:
            if join_file is not None:
                source = f"--join-file={join_file}"
                invitation = parse_invitation(read_private(Path(join_file), source), source)
            elif environ.get(VARIABLE):
                invitation = Invitation("", "", parse_secret(environ[VARIABLE], VARIABLE))
        except NoIdentity as error:
            raise UsageError(str(error)) from None
    secret = invitation.secret if invitation is not None else None
    files = (given[0], given[1], given[2]) if given else None
    return Trust(insecure, secret, files), invitation


def take(environ: MutableMapping[str, str]) -> None:
    """Takes the secret out of this process's environment, so that nothing that is started inherits it."""
    if text := environ.pop(VARIABLE, ""):
        from ..rendezvous.identity.scrub import scrub

        scrub(f"{VARIABLE}={text}")  # with its name: a short text may stand elsewhere, too


def joined(words: Sequence[str], environ: Mapping[str, str]) -> tuple[list[str], dict[str, str]]:
    """`elastic-run join LINE ...` as the words and the environment of `elastic-run ...`. Raises UsageError.

    LINE is the line that the first node prints, `-` for standard input, or a file of mode 0600 that holds it. A secret
    that stands on the command line is overwritten there at once; without one, the node has it otherwise.
    """
    if not words or words[0].startswith("--"):
        raise UsageError(
            "elastic-run join: give - to read the line that the first node prints from standard input, or a file that "
            f"holds it: elastic-run join - train.py <<< '{SCHEME}HOST:PORT/JOB#SECRET'"
        )
    word, *rest = words
    try:
        if word.startswith(SCHEME) and ("#" not in word or word.endswith("#")):
            endpoints, _, job = word.removesuffix("#").removeprefix(SCHEME).partition("/")
            if not (endpoints and job):
                raise NoIdentity(f"{word} is no complete line to join: expected {SCHEME}HOST:PORT/JOB")
            return [f"--rdzv-endpoint={endpoints}", f"--rdzv-id={job}", *rest], dict(environ)
        if word.startswith(SCHEME):
            from ..rendezvous.identity.scrub import scrub

            scrub(word.rpartition("#")[2])
            sys.stderr.write(f"[elastic-run] {ON_COMMAND_LINE}\n")
            invitation = parse_invitation(word, "the line to join")
        elif word == "-":
            invitation = parse_invitation(sys.stdin.readline(_LONGEST_LINE), "standard input")
        else:
            invitation = parse_invitation(read_private(Path(word), f"the file {word}"), f"the file {word}")
    except NoIdentity as error:
        raise UsageError(f"elastic-run join: {error}") from None
    if not invitation.endpoints:
        raise UsageError(f"elastic-run join: the line has no address: expected {SCHEME}HOST:PORT/JOB#SECRET")
    where = [f"--rdzv-endpoint={invitation.endpoints}", f"--rdzv-id={invitation.job}"]
    return [*where, *rest], {**environ, VARIABLE: invitation.secret.text}


def identity_of(
    trust: Trust,
    endpoints: Iterable[Endpoint],
    say: Say,
    role: str = "agent",
    environ: Mapping[str, str] = os.environ,
    *,
    make: bool = True,
) -> "Identity | None":
    """What this process proves itself with; None with --insecure.

    Args:
        make: make the user's own secret where there is none; False for who only asks a job that runs.

    This process writes no core file from now on. Raises NoIdentity.
    """
    if trust.insecure:
        return None
    from ..rendezvous.identity.contexts import Identity, OwnFiles

    write_no_core()
    own = OwnFiles(*trust.own) if trust.own is not None else None
    secret, cache = trust.secret, None
    if secret is None and not (own is not None and all(endpoint.own for endpoint in endpoints)):
        cache = own_folder(environ)
        secret, made = own_secret(cache, make=make)
        if made:
            say(f"the secret that protects your jobs was made: {cache / 'secret'}")
    return Identity(secret, cache=cache, own=own, role=role)


def in_words(trust: Trust, endpoints: Iterable[Endpoint], environ: Mapping[str, str]) -> str:
    """How this node would prove itself, for a person. Reads and makes nothing."""
    if trust.insecure:
        return "none (--insecure)"
    if trust.secret is not None:
        return f"with the secret that was given (fingerprint {trust.secret.fingerprint})"
    if trust.own is not None and all(endpoint.own for endpoint in endpoints):
        return "with the certificates of --tls-cert"
    try:
        return f"with your own secret, which is made if it is missing ({own_folder(environ) / 'secret'})"
    except NoIdentity as error:
        return str(error)


def protected(endpoints: tuple[Endpoint, ...], identity: "Identity | None") -> tuple[Endpoint, ...]:
    """The endpoints, of which those of a store of ours are protected by the job's secret (pure)."""
    if identity is None:
        return endpoints
    return tuple(each if each.own else replace(each, secret=identity.fingerprint) for each in endpoints)


def security(identity: "Identity | None") -> Security:
    """What the agents' port speaks (pure)."""
    if identity is None:
        return Security()
    return Security(server=identity.server, client=identity.client, written=identity.written)


def mark(trust: Trust, identity: "Identity | None") -> str:
    """What all nodes must have in common, and is no secret (pure)."""
    if identity is None:
        return "none (--insecure)"
    return "--tls-ca" if trust.own is not None else f"secret {identity.fingerprint}"


MOST_DIGESTS = 64
"""Arguments with a digest of their own; the others have one together. They stand in each node's key in the store."""


def concealed(arguments: Sequence[str], identity: "Identity | None") -> tuple[str, ...]:
    """A digest of each argument, by which nodes compare what readers of the store need not know (pure).

    With a secret it is keyed, so that nobody else can try what an argument may be.
    """
    key = identity.secret.derived("arguments") if identity is not None and identity.secret is not None else b""
    first, rest = arguments[:MOST_DIGESTS], arguments[MOST_DIGESTS:]
    shown = [*first, *(["\0".join(rest)] if rest else [])]
    return tuple(
        hashlib.blake2b(f"{number} {text}".encode(errors="surrogateescape"), key=key, digest_size=6).hexdigest()
        for number, text in enumerate(shown)
    )


def invitation_lines(options: Options, endpoints: Sequence[Endpoint], identity: "Identity | None") -> list[str]:
    """What the first node prints for other machines; the line to join has the secret on a terminal alone."""
    where = ",".join(each.typed for each in endpoints)
    words = shlex.join(join_words(options, where)[2:])  # the line has the endpoint and the job's id
    secret = identity.secret if identity is not None else None
    if secret is not None and sys.stderr is not None and sys.stderr.isatty():
        return [f"  elastic-run join - {words} <<< {shlex.quote(Invitation(where, options.job_id, secret).line)}"]
    address = f"{SCHEME}{where}/{options.job_id}{'#' if '#' in options.job_id else ''}"
    lines = [f"  elastic-run join {shlex.quote(address)} {words}"]
    if identity is not None and identity.cache is not None:
        kept = identity.cache / "secret"
        lines.append(f"  (where it does not share this home folder, copy {kept} there first, with mode 0600)")
    elif secret is not None:
        lines.append(f"  (with the secret that this node was given: --join-file=FILE or {VARIABLE})")
    return lines


def renew(identity: "Identity", folder: Path | None, hosts: Callable[[], Iterable[str]], say: Say) -> None:
    """Replaces certificates that are old, also those of an etcd of this machine in `folder`."""
    now = time.time()
    try:
        identity.renew(now)
        if folder is not None and folder.is_dir():
            identity.member_files(folder, hosts, now)
    except (NoIdentity, OSError) as error:
        say(f"a certificate could not be renewed, and the one before stays in use: {error}")
