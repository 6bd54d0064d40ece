"""The command line of commands that only ask a job that runs: `elastic-run status`, `exporter`, `doctor`."""

from collections.abc import Mapping, Sequence

from ...rendezvous.base.frozen import dataclass
from ..errors import UsageError
from ..settings import Nodes, Store, Timing, Trust
from . import flags
from .rendezvous import read_conf, read_credentials, read_store, read_trust
from .values import shutdown_timeout

REACH = (*(name for name in flags.BY_NAME if name.startswith(("rdzv-", "tls-", "etcd-"))), "join-file", "insecure")
"""Flags of a command that only asks a running job."""


@dataclass(frozen=True, slots=True)
class Reach:
    """Where a job that runs can be asked.

    Attributes:
        store: as of the job's nodes.
        job_id: the job, or None where none is named.
        timing, shutdown_timeout: as of the job's nodes.
        trust: as of the job's nodes.
    """

    store: Store
    job_id: str | None
    timing: Timing
    shutdown_timeout: float
    trust: Trust


def take(words: Sequence[str], name: str) -> tuple[str | None, list[str]]:
    """The value of the last `--name=VALUE` of `words`, None where there is none, and the other words."""
    beginning = f"--{name}="
    given = [word for word in words if word.startswith(beginning)]
    value = given[-1].removeprefix(beginning) if given else None
    return value, [word for word in words if word not in given]


def parse_reach(argv: Sequence[str], environ: Mapping[str, str], verb: str, also: Sequence[str] = ()) -> Reach:
    """The same of a command that takes part in no job, and takes the flags REACH and `also`. Raises UsageError."""
    scanned = flags.scan(argv, environ)
    if scanned.command:
        raise UsageError(f"elastic-run {verb} takes no script: {scanned.command[0]!r} is left over")
    taken = (*REACH, *also)
    wrong = [name for name in scanned.given if name not in taken and not scanned.source(name).startswith("PET_")]
    if wrong:
        raise UsageError(
            f"elastic-run {verb} does not take {scanned.source(wrong[0])}: it takes "
            f"{', '.join(f'--{name}' for name in taken)}"
        )
    scanned = scanned.without([name for name in scanned.given if name not in taken])
    notes: list[str] = []
    scanned, trust = read_trust(scanned, environ, here=True)
    timing, credentials_in_conf, _ = read_conf(scanned, notes)
    credentials = read_credentials(scanned, credentials_in_conf, environ)
    store = read_store(scanned, Nodes(1, 2, 1), credentials, environ, notes)
    return Reach(store, scanned.text("rdzv-id"), timing, shutdown_timeout(scanned, environ), trust)
