"""`elastic-run status`: how a running job is, asked on a machine of it, or from any that reaches its store."""

import asyncio
from collections.abc import Mapping, Sequence

from ...master.status import RUNS
from ...rendezvous.base.visible import visible
from ...rendezvous.identity.secret import NoIdentity
from ...rendezvous.wire.values import encode
from ..console import say
from ..options.reach import Reach, parse_reach
from ..store_access import asked_at, nobody_listens, renewed
from ..terminal.watched import EACH, Watched, possible
from .credentials import credentials_in
from .local_jobs import LocalJob, local_jobs
from .observed_job import ObservedJob
from .running_job import NoAnswer, RunningJob, job_at
from .status_lines import lines

USAGE = """\
elastic-run status [--rdzv-endpoint=HOST:PORT] [--rdzv-id=JOB] [--json] [--watch]
elastic-run status --credentials=FILE [--json] [--watch]

Prints the state of a running job.

  --rdzv-endpoint  the store, as the job's nodes name it; default: your jobs on this machine, then a store here
  --rdzv-id        the job; needed only if there are several
  --json           one line of JSON instead of text
  --watch, -w      until the job is over: on a terminal each second, with keys for the log and the stacks of a rank; to
                   a file or a pipe when something has changed
  --etcd-...       as for the job's nodes
  --credentials    a file from elastic-run credentials; replaces the job's secret and the flags of the store; --watch
                   shows neither log nor stacks then

Exit code: 0; 1 if there is no such job or its master does not answer; 2 for a wrong command.
"""

TOLD, NOBODY = 0, 1
"""Exit codes."""


def main(words: Sequence[str], environ: Mapping[str, str]) -> int:
    """Prints it, and returns the exit code. Raises UsageError."""
    own = ("--json", "--watch", "-w")
    given = {word for word in words if word in own}
    as_json, watch = "--json" in given, bool(given - {"--json"})
    credentials, rest = credentials_in([word for word in words if word not in own], "status")
    try:
        if credentials is not None:
            return asyncio.run(_tell(ObservedJob(credentials), credentials.job, as_json=as_json, watch=watch))
        return asyncio.run(_run(parse_reach(rest, environ, "status"), as_json=as_json, watch=watch))
    except (NoAnswer, NoIdentity) as error:
        say(str(error))
        return NOBODY
    except KeyboardInterrupt:
        return 130


async def _run(reach: Reach, *, as_json: bool, watch: bool) -> int:
    """Raises NoAnswer, NoIdentity."""
    endpoints = asked_at(reach)
    where = ",".join(map(str, endpoints))
    if not reach.store.endpoints and (local := await _local(reach.job_id)):
        return await _tell(local, local.job, as_json=as_json, watch=watch)
    if reach.store.kind == "memory" or await nobody_listens(endpoints):
        here = "" if reach.store.endpoints else "no such job of yours runs on this machine, and "
        raise NoAnswer(f"{here}nothing listens at {where}: --rdzv-endpoint says where the store of a job is")
    async with job_at(endpoints, reach) as (running, identity), renewed(identity, say):
        return await _tell(running, running.job, as_json=as_json, watch=watch)


async def _local(job: str | None) -> LocalJob | None:
    """This user's job on this machine, or the one of that name. Raises NoAnswer where there are several."""
    found = [each for each in await local_jobs() if job in (None, each.job)]
    if len(found) > 1 and job is None:
        names = ", ".join(sorted(visible(each.job) for each in found))
        raise NoAnswer(f"you have {len(found)} jobs on this machine, name one of them with --rdzv-id: {names}")
    return found[0] if found else None


async def _tell(running: RunningJob | ObservedJob | LocalJob, job: str, *, as_json: bool, watch: bool) -> int:
    """Prints the status, again and again if it is watched. Raises NoAnswer."""
    last: tuple[object, ...] = ()
    try:
        if watch and not as_json and possible():
            return await _on_terminal(running, job)
        while True:
            try:
                status = await running.status()
            except NoAnswer as error:
                if last and error.over:
                    say(f"job {visible(job)} is over")
                    return TOLD
                raise
            now = (status.state, status.round, status.nodes, status.standbys, status.tally, status.datasets)
            if now != last:
                print(encode(status).decode() if as_json else "\n".join(lines(status)), flush=True)
            last = now
            if not watch or status.state not in RUNS:
                return TOLD
            await asyncio.sleep(EACH)
    finally:
        await running.close()


async def _on_terminal(running: RunningJob | ObservedJob | LocalJob, job: str) -> int:
    """Raises NoAnswer where there is no such job."""
    watched = Watched(running.status, None if isinstance(running, ObservedJob) else running.see_rank)
    try:
        await watched.run()
    except NoAnswer as error:
        if not watched.answered or not error.over:
            raise
        say(f"job {visible(job)} is over")
    return TOLD
