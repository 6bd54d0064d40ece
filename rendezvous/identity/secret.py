"""The secret that the nodes of a job share, and where a node finds it.

The first source that has one counts: a file that the user names, the environment, a line to join, and the user's own
file, which the first node that needs a secret makes. So where the nodes share a home folder, or a machine, nothing has
to be done.
"""

import base64
import binascii
import hashlib
import hmac
import os
import secrets
from collections.abc import Mapping
from pathlib import Path

from ..base.errors import RendezvousError
from ..base.frozen import dataclass, field
from ..base.visible import visible
from ..host.own_files import NotOwn, read_own, write_own_first
from ..host.own_files import own_folder as make_own_folder

SECRET_BYTES = 32

VARIABLE = "ELASTIC_RUN_SECRET"
"""Holds the secret as text; taken out of the environment of everything that this program starts."""

SCHEME = "elastic-run://"
"""Begins a line to join: `elastic-run://HOST:PORT[,HOST:PORT...]/JOB#SECRET`."""


GIVE_IT = (
    "run the line that the first node prints (elastic-run join), or give this node the same secret with "
    f"--join-file=FILE or in {VARIABLE}; --insecure on every node runs the job without"
)
"""What a person does where two nodes have not the same secret."""

OTHER_SECRET = f"another secret than this one, or one side has --insecure: {GIVE_IT}"
"""What a node has that writes what this one cannot read."""


def runs_with_another(job: str) -> str:
    """Why this node takes no part in that job, where its nodes write what this one cannot read (pure)."""
    return f"job {visible(job)} runs there, and its nodes have {OTHER_SECRET}"


class NoIdentity(RendezvousError):
    """This node has no secret that it can use; the message says why and what to do. Nothing was started."""


@dataclass(frozen=True, slots=True)
class Secret:
    """The secret of a job, or of all jobs of one user; its text is never printed by accident."""

    value: bytes = field(repr=False)

    @property
    def text(self) -> str:
        """As it is written in files, variables and lines: base64url without padding."""
        return base64.urlsafe_b64encode(self.value).rstrip(b"=").decode()

    @property
    def fingerprint(self) -> str:
        """16 hexadecimal digits that tell two secrets apart, and say nothing else about them: not a secret."""
        return self.derived("fingerprint").hex()[:16]

    def derived(self, purpose: str) -> bytes:
        """32 bytes for one purpose, which say nothing about the secret nor about those of another purpose."""
        return hmac.digest(self.value, f"elastic-run {purpose} v1".encode(), hashlib.sha256)


def new_secret() -> Secret:
    """A random one."""
    return Secret(secrets.token_bytes(SECRET_BYTES))


def parse_secret(text: str, source: str) -> Secret:
    """Reads `Secret.text`. Raises NoIdentity, whose message names `source` and does not repeat the text."""
    text = text.strip()
    try:
        value = base64.b64decode(text + "=" * (-len(text) % 4), altchars=b"-_", validate=True)
    except (binascii.Error, ValueError):
        value = b""
    if len(value) != SECRET_BYTES:
        raise NoIdentity(
            f"{source} holds no secret: expected {SECRET_BYTES} bytes in base64url, which are 43 characters. Copy it "
            "from the first node's ~/.config/elastic-run/secret"
        )
    return Secret(value)


@dataclass(frozen=True, slots=True)
class Invitation:
    """What a line to join says.

    Attributes:
        endpoints: of the store, with commas; empty where the text is a secret alone.
        job: the job's id; empty where the text is a secret alone.
    """

    endpoints: str
    job: str
    secret: Secret

    @property
    def line(self) -> str:
        """The text, which holds the secret."""
        return f"{SCHEME}{self.endpoints}/{self.job}#{self.secret.text}"


def parse_invitation(text: str, source: str) -> Invitation:
    """Reads a line to join, or a secret alone. Raises NoIdentity, whose message does not repeat the text."""
    text = text.strip()
    if not text.startswith(SCHEME):
        if "://" in text:
            raise NoIdentity(f"{source} is no line to join: it begins with {SCHEME}HOST:PORT/JOB#SECRET")
        return Invitation("", "", parse_secret(text, source))
    address, hash_sign, secret = text.removeprefix(SCHEME).rpartition("#")
    endpoints, slash, job = address.partition("/")
    if not (hash_sign and slash and endpoints and job):
        raise NoIdentity(f"{source} is no complete line to join: expected {SCHEME}HOST:PORT/JOB#SECRET")
    return Invitation(endpoints, job, parse_secret(secret, source))


def read_private(path: Path, source: str) -> str:
    """The text of a file that only this user can read. Raises NoIdentity."""
    try:
        return read_own(path)
    except NotOwn as error:
        raise NoIdentity(f"{source}: {error}") from None
    except OSError as error:
        raise NoIdentity(f"{source} cannot be read: {error.strerror}") from None
    except ValueError:
        raise NoIdentity(f"{source} holds no secret: it is not text") from None


def own_folder(environ: Mapping[str, str]) -> Path:
    """Where the user's own secret lies: $XDG_CONFIG_HOME/elastic-run, or ~/.config/elastic-run. Raises NoIdentity."""
    configured = environ.get("XDG_CONFIG_HOME", "")
    if configured.startswith("/"):
        return Path(configured) / "elastic-run"
    try:
        return Path.home() / ".config" / "elastic-run"
    except RuntimeError:
        raise NoIdentity(f"this user has no home folder for the job's secret: {_OTHERWISE}") from None


_OTHERWISE = (
    f"give the secret in {VARIABLE} or with --join-file=FILE, or run without encryption and authentication with "
    "--insecure"
)


def own_secret(folder: Path, *, make: bool = True) -> tuple[Secret, bool]:
    """The user's own secret, and whether this call made it because there was none.

    Args:
        make: False: one that is not there is an error.

    Raises NoIdentity.
    """
    path = folder / "secret"
    if not make and not os.path.lexists(path):
        raise NoIdentity(
            f"there is no secret of yours on this machine ({path}): copy it from a node of the job with mode 0600, "
            f"give it in {VARIABLE} or with --join-file=FILE, or give --insecure where the job was started so"
        )
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        make_own_folder(folder)
        made = write_own_first(path, f"{new_secret().text}\n")
    except NotOwn as error:
        raise NoIdentity(f"the job's secret: {error}. Or {_OTHERWISE}") from None
    except OSError as error:
        raise NoIdentity(f"the job's secret cannot be written to {path} ({error.strerror}): {_OTHERWISE}") from None
    return parse_secret(read_private(path, f"the file {path}"), f"the file {path}"), made
