"""The command: an HTTP server that asks the jobs whenever Prometheus asks it.

It is a process of its own, so it costs a job one small request a scrape, and nothing when it is killed.
"""

import asyncio
import signal
import threading
import time
from collections.abc import Iterable, Mapping, Sequence
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from ....master.status import Status
from ....rendezvous.base.errors import StoreError
from ....rendezvous.identity.observer import Credentials
from ....rendezvous.identity.secret import NoIdentity
from ....rendezvous.rpc.envelope import Security
from ....rendezvous.store.contract import Store
from ....rendezvous.store.endpoint import Endpoint, MalformedEndpoint, is_local, loopback_address, parse_endpoints
from ...console import say
from ...errors import UsageError
from ...options.reach import Reach, parse_reach, take
from ...store_access import asked_at, etcd_at, nobody_listens, renewed
from ..credentials import credentials_in
from ..local_jobs import local_jobs
from ..observed_job import ObservedJob
from ..running_job import NoAnswer, RunningJob, jobs
from .metrics import METRICS, STORE_UP, STORE_UP_HELP, UP, Metric

if TYPE_CHECKING:
    from prometheus_client.core import Metric as Family

USAGE = """\
elastic-run exporter [--listen=HOST:PORT] [--rdzv-endpoint=HOST:PORT] [--rdzv-id=JOB]
elastic-run exporter [--listen=HOST:PORT] --credentials=FILE

Serves metrics of jobs to Prometheus, at /metrics.

  --listen         address to listen on; default: loopback, port 9464
  --rdzv-endpoint  the store, as the jobs' nodes name it; default: your jobs on this machine, and those of a store here
  --rdzv-id        only this job; default: all of them
  --etcd-...       as for the jobs' nodes
  --credentials    a file from elastic-run credentials; replaces the secret and the flags above, for one job

Runs until it receives SIGINT or SIGTERM. Needs the package prometheus-client (pip install 'elastic-run[metrics]').
"""

PORT = 9464

PATIENCE = 3.0
"""Seconds for the answer of one job: all are asked at once, and Prometheus gives up after ten."""

AT_ONCE = 50
"""Jobs that are asked at one time."""

SCRAPE = 8.0
"""Seconds for all of them."""


def main(words: Sequence[str], environ: Mapping[str, str]) -> int:
    """Serves until a signal, and returns the exit code. Raises UsageError."""
    listen, rest = _listen(words)
    credentials, rest = credentials_in(rest, "exporter")
    if credentials is not None:
        _need_prometheus()
        return asyncio.run(observe(credentials, listen))
    reach = parse_reach(rest, environ, "exporter")
    _need_prometheus()
    return asyncio.run(_ask(reach, listen))


def _need_prometheus() -> None:
    if find_spec("prometheus_client") is None:
        raise UsageError("elastic-run exporter needs the package prometheus-client: pip install 'elastic-run[metrics]'")


def _listen(words: Sequence[str]) -> tuple[Endpoint, Sequence[str]]:
    given, rest = take(words, "listen")
    text = loopback_address() if given is None else given
    try:
        (listen,) = parse_endpoints(text, PORT)
    except (MalformedEndpoint, ValueError):
        raise UsageError(f"--listen={text} is not HOST:PORT: write for example --listen=0.0.0.0:9464") from None
    if not is_local(listen.host) and listen.host not in ("0.0.0.0", "::"):
        raise UsageError(f"--listen={text}: {listen.host} is not an address of this machine")
    return listen, rest


async def observe(credentials: Credentials, listen: Endpoint) -> int:
    """Serves the observer's job until a signal, and returns the exit code. Raises UsageError."""
    try:
        job = Observed(credentials)
    except NoIdentity as error:
        raise UsageError(str(error)) from None
    ends = time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime(credentials.until))
    say(f"the credentials for job {credentials.job!r} end on {ends}")
    return await serve_metrics(job, listen, f"job {credentials.job}")


async def _ask(reach: Reach, listen: Endpoint) -> int:
    endpoints, here = asked_at(reach), not reach.store.endpoints
    whose = "your jobs on this machine" if here else f"the jobs at {','.join(map(str, endpoints))}"
    store, security, identity = None, Security(), None
    try:
        store, security, identity = etcd_at(endpoints, reach.store.credentials, reach.trust, say)
    except NoIdentity as error:
        if not here:
            raise UsageError(str(error)) from None
    try:
        async with renewed(identity, say):
            jobs = Jobs(store, reach.job_id, security, endpoints if here else ())
            return await serve_metrics(jobs, listen, whose)
    finally:
        if store is not None:
            await store.close()


async def serve_metrics(jobs: "Jobs | Observed", listen: Endpoint, whose: str) -> int:
    """Answers scrapes until a signal comes; the exit code. `whose` names the jobs in the first line."""
    from prometheus_client import CollectorRegistry

    from .server import MetricsServer

    loop, ended = asyncio.get_running_loop(), asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, ended.set)
    collector = Collector(loop, jobs)
    registry = CollectorRegistry(auto_describe=False)
    registry.register(collector)
    try:
        server = MetricsServer(listen, registry)
    except OSError as error:
        raise UsageError(f"--listen={listen}: {error.strerror}: name another address") from None
    try:
        async with server.serving("metrics"):
            print(f"[elastic-run] metrics of {whose}: http://{listen}/metrics", flush=True)
            await ended.wait()
    finally:
        await collector.jobs.close()
    return 0


class Jobs:
    """The jobs in one store; their connections are kept from one scrape to the next.

    Args:
        store: the caller closes it; None: there is none.
        only: the id of the only one that is asked; None: all.
        security: what their agents speak.
        here: this user's jobs on this machine are asked, too, and the store only where somebody listens there.

    Attributes:
        store: there is one that is asked, whatever happens.
    """

    def __init__(
        self, store: Store | None, only: str | None, security: Security, here: Sequence[Endpoint] = ()
    ) -> None:
        self._store = store
        self._security = security
        self._only = only
        self._here = here
        self.store = not here
        self._known: dict[str, RunningJob] = {}

    async def statuses(self) -> Mapping[str, Status | None]:
        """The status of each; None where nobody answers for it. Raises StoreError, TimeoutError."""
        found: dict[str, Status | None] = {}
        for job, status in (await local_jobs() if self._here else {}).items():
            await job.close()
            if status.job == (self._only or status.job):
                found[status.job] = status
        if self._store is None or (self._here and await nobody_listens(self._here)):
            return found
        try:
            await self._ask_store(self._store, found)
        except (StoreError, TimeoutError):
            if self.store:
                raise
        return dict(sorted(found.items()))

    async def _ask_store(self, store: Store, found: dict[str, Status | None]) -> None:
        """Of each in the store that is not yet `found`."""
        async with asyncio.timeout(SCRAPE):
            ids = await jobs(store)
            ids = [job for job in ids if job == (self._only or job) and job not in found]
            for gone in set(self._known) - set(ids):
                await self._known.pop(gone).close()
            turns = asyncio.Semaphore(AT_ONCE)

            async def ask(job: str) -> None:
                running = self._known.setdefault(job, RunningJob(store, job, self._security))
                async with turns:
                    try:
                        found[job] = await running.status(PATIENCE)
                    except NoAnswer as error:
                        if not error.over:
                            found[job] = None

            async with asyncio.TaskGroup() as group:
                for job in ids:
                    group.create_task(ask(job))

    async def close(self) -> None:
        for running in self._known.values():
            await running.close()
        self._known.clear()


class Observed:
    """The one job that an observer may look at; it asks no store. Raises NoIdentity.

    Attributes:
        store: there is one that is asked.
    """

    store = False

    def __init__(self, credentials: Credentials) -> None:
        self._job = credentials.job
        self._observed = ObservedJob(credentials)
        self._why = ""  # there is no answer; said when it changes

    async def statuses(self) -> Mapping[str, Status | None]:
        """The status of it; None where nobody answers for it."""
        try:
            status = await self._observed.status(PATIENCE)
        except NoAnswer as error:
            if (why := str(error)) != self._why:
                self._why = why
                say(why)
            return {} if error.over else {self._job: None}
        self._why = ""
        return {self._job: status}

    async def close(self) -> None:
        await self._observed.close()


class Collector:
    """What prometheus_client asks, in a thread of its own for each scrape; those that wait share the next answer.

    Args:
        loop: that of `jobs`.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, jobs: Jobs | Observed) -> None:
        self._loop = loop
        self.jobs = jobs
        self._one = threading.Lock()
        self._begun = float("-inf")  # when the jobs were asked last
        self._found: Mapping[str, Status | None] | None = None

    def collect(self) -> Iterable["Family"]:
        """All metrics of all jobs, now."""
        wanted = time.monotonic()
        with self._one:
            if self._begun < wanted:
                self._begun = time.monotonic()
                self._found = self._ask()
            found = self._found
        return list(families(found, store=self.jobs.store))

    def _ask(self) -> Mapping[str, Status | None] | None:
        """None: the store does not answer."""
        asking = asyncio.run_coroutine_threadsafe(self.jobs.statuses(), self._loop)
        try:
            return asking.result()
        except (StoreError, TimeoutError) as error:
            say(f"the store does not answer: {str(error) or 'no answer in time'}")
        except asyncio.CancelledError:
            pass
        return None


def families(statuses: Mapping[str, Status | None] | None, *, store: bool = True) -> Iterable["Family"]:
    """The statuses as Prometheus's values; None: the store does not answer.

    Args:
        store: a store was asked, so whether it answers is told, too.
    """
    from prometheus_client.core import GaugeMetricFamily

    if store:
        yield GaugeMetricFamily(STORE_UP, STORE_UP_HELP, value=float(statuses is not None))
    if statuses is None:
        return
    up = _family(UP)
    for job, status in statuses.items():
        up.add_metric([job], float(status is not None))
    yield up
    for metric in METRICS:
        family = _family(metric)
        for job, status in statuses.items():
            for labels, value in metric.read(status) if status is not None else ():
                family.add_metric([job, *labels], value)
        yield family


def _family(metric: Metric) -> Any:  # Any: counters and gauges have no common type with `add_metric`
    from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

    kind = GaugeMetricFamily if metric.kind == "gauge" else CounterMetricFamily
    return kind(metric.name, metric.help, labels=["job", *metric.labels])
