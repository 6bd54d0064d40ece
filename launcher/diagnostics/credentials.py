"""`elastic-run credentials`: makes a file with which others may look at one job, and change nothing.

Made on a machine that has the job's secret, and used with `--credentials=FILE` on any machine that reaches the agents.
"""

import asyncio
import re
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from ...master.status import Status
from ...rendezvous.host.own_files import write_own_first
from ...rendezvous.identity import observer
from ...rendezvous.identity.observer import DAY, Credentials
from ...rendezvous.identity.secret import NoIdentity
from ..console import say
from ..errors import UsageError
from ..options.reach import Reach, parse_reach, take
from ..store_access import asked_at
from .observed_job import agents_of
from .running_job import NoAnswer, job_at

USAGE = """\
elastic-run credentials FILE [--days=N] [--rdzv-endpoint=HOST:PORT] [--rdzv-id=JOB]

Writes FILE, of mode 0600. Its holder may look at this one running job, with elastic-run status --credentials=FILE and
elastic-run exporter --credentials=FILE, and can change nothing.

  FILE             a new file; - for standard output
  --days           days for which it is valid, 1 to 90; default: 7
  --rdzv-endpoint  the store, as the job's nodes name it; default: this machine
  --rdzv-id        the job; needed only if the store has several
  --join-file      a file with the job's secret, as for the job's nodes
  --etcd-...       as for the job's nodes

Exit code: 0; 1 if there is no such job or its master does not answer; 2 for a wrong command.
"""

DAYS, MOST_DAYS = 7, 90
"""An observer's certificate ends by itself, and is not taken back before."""


def main(words: Sequence[str], environ: Mapping[str, str]) -> int:
    """Makes them, and returns the exit code. Raises UsageError."""
    if not words or words[0].startswith("--"):
        raise UsageError("elastic-run credentials: name the file to write first: elastic-run credentials observer.json")
    name, *rest = words
    days, rest = _days(rest)
    reach = parse_reach(rest, environ, "credentials")
    if reach.store.kind == "memory":
        raise UsageError("elastic-run credentials: a job of one node listens nowhere, so nobody else can look at it")
    if reach.trust.insecure:
        raise UsageError(
            "elastic-run credentials: with --insecure anyone who reaches a job can look at it and change it"
        )
    return asyncio.run(_make(reach, name, days * DAY))


def credentials_in(words: Sequence[str], verb: str) -> tuple[Credentials | None, list[str]]:
    """Those that `--credentials` names, and the other words. Raises UsageError."""
    given, rest = take(words, "credentials")
    if given is None:
        return None, rest
    if rest:
        raise UsageError(f"elastic-run {verb}: --credentials says which job is asked, and how: leave out {rest[0]}")
    try:
        return observer.read_credentials(Path(given), time.time()), rest
    except NoIdentity as error:
        raise UsageError(str(error)) from None


def addressed(status: Status) -> tuple[str, ...]:
    """Where the job's agents listen. Raises NoAnswer where no agent does."""
    if agents := agents_of(status):
        return agents
    raise NoAnswer(
        f"no node of job {status.job!r} has registered yet, so there is nobody to look at it with: try again"
    )


def _days(words: Sequence[str]) -> tuple[int, list[str]]:
    given, rest = take(words, "days")
    text = str(DAYS) if given is None else given
    if not re.fullmatch("[0-9]{1,2}", text) or not 1 <= int(text) <= MOST_DAYS:
        raise UsageError(f"--days={text} is no whole number from 1 to {MOST_DAYS}")
    return int(text), rest


async def _make(reach: Reach, name: str, seconds: float) -> int:
    try:
        async with job_at(asked_at(reach), reach) as (running, identity):
            assert identity is not None, "without an identity it is --insecure"
            job, agents = running.job, addressed(await running.status())
        made = observer.issue(identity, job, agents, seconds, time.time())
    except (NoAnswer, NoIdentity) as error:
        say(str(error))
        return 1
    if name == "-":
        sys.stdout.write(made.text)
        return 0
    try:
        if not write_own_first(Path(name), made.text):
            raise UsageError(f"elastic-run credentials: {name} is there already: name a new file")
    except OSError as error:
        raise UsageError(f"elastic-run credentials: {name} cannot be written: {error.strerror}") from None
    say(f"{name} lets its holder look at job {job} for {seconds / DAY:g} days, and change nothing")
    return 0
