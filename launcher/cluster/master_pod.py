"""The master's pod in a Kubernetes cluster: it starts the job's other pods, and writes how the job is."""

import asyncio
import contextlib
import os
from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, NoReturn

from ...elastic_agent.machine import plan
from ...master.nodes.kubernetes import objects, pods, store, troubles
from ...master.nodes.kubernetes.api import Api
from ...master.nodes.kubernetes.cluster import KubernetesPlatform
from ...master.nodes.kubernetes.job import ClusterJob
from ...master.nodes.kubernetes.objects import EXIT_CODE, JOB_VARIABLE, Control, Json, literal
from ...master.nodes.kubernetes.queued import QueuedPlatform
from ...master.nodes.node_manager import NodeManager
from ...master.nodes.platform import PlatformError, PlatformRefused
from ...master.nodes.reconcile import Plan
from ...master.nodes.relaunch import Limits
from ...master.nodes.replica import CannotStart, Replica, Unschedulable
from ...master.status import NEWEST, Status
from ...rendezvous import membership
from ...rendezvous.base.cancel import cancel
from ...rendezvous.base.errors import StoreError
from ...rendezvous.keys import Keys
from ...rendezvous.wire.values import Tagged
from ..settings import Options, join_words
from . import unstarted
from .managed_nodes import Say, Start, Wish, managed

COUNTED = ("run", "round", "earlier", "incidents")
"""Fields of a status that go on with the next master and the next run; `earlier`: rounds of the runs before."""

STORE_ASKED = 2.0
"""Seconds between two questions to the store whether it answers."""

STORE_AWAY = 5.0
"""Seconds without an answer after which the job's status says so; an election of etcd's takes a second or two."""

DEGRADED = "degraded"
"""The state of a job that trains, and could not open another round."""

AFTER = (
    "workers train on; whatever needs a round waits, and a node without workers ends after a minute. The job goes on "
    "where it was when the store is back with its data, else from the script's checkpoint"
)
"""What follows where a store does not answer."""

LOOK = 5.0
"""Seconds between two looks at the pods of the job's own store."""

AGAIN = 5.0
"""Seconds until a task beside the job's control begins again that has ended."""


class Cluster:
    """The job of this pod, as the cluster has it, from before its store answers.

    Args:
        job: loaded.
        say: prints one line for a person.

    Attributes:
        store: what the status says of the pods of the job's own store that do not run.
        absent: which of them do not answer, for a person; empty where the last look did not tell.
        on_store: called after each look at them.
    """

    def __init__(self, api: Api, job: ClusterJob, say: Say) -> None:
        self.api = api
        self.job = job
        self._say = say
        self._writing: asyncio.Task[None] | None = None
        self._reason = self._trouble = self.absent = ""
        self.store: Sequence[Json] = ()
        self.on_store: Callable[[], None] = lambda: None

    async def over(self) -> tuple[int, str] | None:
        """The exit code and the reason where another master has ended the job, and was lost before it ended itself.

        Raises:
            PlatformError: the Job could not be told that no other master is to be started.
        """
        if EXIT_CODE not in self.job.status:
            return None
        code = int(self.job.status[EXIT_CODE])
        if code:
            await self.job.no_other_master()
        return code, str(self.job.status.get("reason", ""))

    def say(self, line: str) -> None:
        """Prints it; until the store answers, it is the reason that the job's status has, too."""
        self._say(line)
        self._reason = line
        self._write_reason()

    def _write_reason(self) -> None:
        if self._writing is not None and (reason := self._trouble or self._reason):
            state = DEGRADED if self.job.status.get("state") in ("running", DEGRADED) else "pending"
            self.job.tell({**self.job.status, "state": state, "reason": reason, "waiting": self.store})

    async def unless_store_fails(self, work: Coroutine[Any, Any, tuple[int, str]]) -> tuple[int, str]:
        """What `work` returns; where the job's own store can never answer, it is cancelled, and the job ends."""
        if not self.job.store_size:
            return await work
        hopeless: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        looking = supervised("looking at the store's pods", lambda: self._look_at_store(hopeless), self._say)
        working, other = asyncio.create_task(work), asyncio.create_task(looking, name="the store's pods")
        try:
            await asyncio.wait({working, hopeless}, return_when=asyncio.FIRST_COMPLETED)
            if working.done():
                return working.result()
        finally:
            await cancel(working, other)
        await self.waited()
        return await self.write_end(Report(self.job), plan.FAILED, hopeless.result())

    async def write_end(
        self, report: "Report", code: int, why: str, finish: Callable[[], Awaitable[None]] | None = None
    ) -> tuple[int, str]:
        """Writes the job's end, calls `finish`, and has no other master start after failure. Raises PlatformRefused."""
        try:
            await self.job.end(report.ended(code, why))
            if finish:
                await finish()
            if code:
                await self.job.no_other_master()
        except (PlatformError, TimeoutError) as error:  # this process fails, and the next master does it
            raise PlatformRefused(f"the end of the job ({why}) could not be written: {error}") from error
        return code, why

    async def _look_at_store(self, hopeless: "asyncio.Future[str]") -> None:
        """Tells again and again why its pods do not run; `hopeless` is told why they never will, where that is so."""
        pulls, patience, now = troubles.Pulls(), unstarted.Patience(), asyncio.get_running_loop().time
        query = (("labelSelector", f"{pods.JOB}={self.job.name},{objects.COMPONENT}=store"),)
        while True:
            await asyncio.sleep(LOOK)
            try:
                found, _ = await self.api.list(self.api.path("pods"), query)
            except PlatformError:
                self.absent = ""
                continue  # the next look may tell
            self.absent = store.absent(self.job.name, self.job.store_size, found)
            reasons = {
                each["metadata"]["name"]: pulls.with_cause(each["metadata"]["uid"], pods.pending_of(each))
                for each in found
            }
            trouble = unstarted.of_store(reasons, self.job.store_size)
            self._trouble = trouble.words if trouble else ""
            held = {name: why for name, why in reasons.items() if isinstance(why, CannotStart | Unschedulable)}
            self.store = [_waiting(name, reason) for name, reason in held.items()]
            self._write_reason()
            self.on_store()
            why = patience.ended_by(trouble, now())
            # Who has answered once waits on: what was good for it then is good for it.
            if why and self._writing is not None and not self.job.status.get("round") and not hopeless.done():
                hopeless.set_result(why)

    async def end_store(self) -> None:
        """The job is over, and nobody uses its own store any more."""
        try:
            await self.job.end_store()
        except PlatformError as error:
            self._say(f"the members of the job's store run until the job is deleted: {error}")

    @contextlib.asynccontextmanager
    async def waiting(self) -> AsyncGenerator[None]:
        """While this lasts, what is said is written to the job's status."""
        self._writing = asyncio.create_task(supervised("writing what is waited for", self.job.write, self._say))
        try:
            yield
        finally:
            await self.waited()

    async def waited(self) -> None:
        """The store answers."""
        writing, self._writing = self._writing, None
        if writing is not None:
            await cancel(writing)

    async def lead(self, start: Start, endpoints: str) -> tuple[int, str]:
        """Takes part in the election, and runs the node manager, until the job is over: the exit code, and why.

        A process that is told to end leaves pods as they are: they train on, and another process like this one takes
        them up. Raises PlatformError, StoreError.
        """
        await self.waited()
        # Each submission has an id of its own in the store: who has succeeded there is this job.
        if await membership.refuse_if_over(start.store, Keys(start.options.job_id), own_run=""):
            why = "the job has succeeded, and its master was lost then"
            return await self.write_end(Report(self.job), plan.SUCCEEDED, why)
        return await _lead(start, endpoints, self)


@contextlib.asynccontextmanager
async def cluster_of(say: Say) -> AsyncGenerator[Cluster]:
    """The job of this pod. Raises PlatformError."""
    name = os.environ.get(JOB_VARIABLE)
    if not name:
        raise PlatformRefused(
            f"--platform=kubernetes is for the pod that elastic-job submit makes ({JOB_VARIABLE} is not set here). To "
            "run a job in the cluster: elastic-job submit --image=IMAGE --nnodes=2:8 -- train.py"
        )
    api = Api.load()
    try:
        job = ClusterJob(api, name, say)
        await job.load()
        yield Cluster(api, job, say)
    finally:
        api.close()


async def _lead(start: Start, endpoints: str, cluster: Cluster) -> tuple[int, str]:
    api, job = cluster.api, cluster.job
    now = asyncio.get_running_loop().time
    templates = {
        role: objects.with_command(pod, _words(start.options, endpoints, role)) for role, pod in job.templates.items()
    }
    report = Report(job)
    platform: KubernetesPlatform | QueuedPlatform
    if job.queue:
        platform = QueuedPlatform(api, job.name, job.owner, templates, job.queue, now)
    else:
        platform = KubernetesPlatform(api, job.name, (job.owner, job.controller), templates, now)
    manager = NodeManager(platform, start.say, now, Limits(memory_cap=job.memory_cap), report.on_plan)
    wish = Wish()

    def on_control() -> None:
        control = job.control
        wish.change(control.scale, suspended=control.suspend, cancelled=control.cancel)
        report.on_control(control)

    cluster.on_store = lambda: report.on_store(cluster.store)
    on_control()
    tasks = [
        asyncio.create_task(supervised("following what the user wants", lambda: job.follow(on_control), start.say)),
        asyncio.create_task(supervised("writing the job's status", job.write, start.say)),
        asyncio.create_task(supervised("asking the store", lambda: _ask_store(start, cluster, report), start.say)),
    ]
    try:
        code, why = await managed(start, manager, wish, report.on_status)
    finally:
        cluster.on_store = lambda: None
        await cancel(*tasks)
    # Where this pod was told to go, or has lost the store, the job continues, and another master will lead it.
    if code < 128 and code != plan.STORE_LOST:
        await cluster.write_end(report, code, why, platform.finish if isinstance(platform, QueuedPlatform) else None)
    return code, why


async def _ask_store(start: Start, cluster: Cluster, report: "Report") -> None:
    """Has `report` know since when the store has not answered; runs until it is cancelled."""
    now, since = asyncio.get_running_loop().time, None
    while True:
        try:
            await start.store.get(Keys(start.options.job_id).round)
            since, words = None, ""
        except StoreError as error:
            since = since or (now(), f"{datetime.now(UTC):%H:%M:%S} UTC")
            words = f"the store has not answered since {since[1]} ({cluster.absent or error}); {AFTER}"
        report.on_quorum(words if since is not None and now() - since[0] >= STORE_AWAY else "")
        await asyncio.sleep(STORE_ASKED)


async def supervised(what: str, work: Callable[[], Awaitable[None]], say: Say) -> NoReturn:
    """Does `work`, which ends only when it is cancelled; again after a pause where it ends otherwise.

    The job trains on meanwhile, so what went wrong is said, and ends nothing else.
    """
    while True:
        try:
            await work()
            why = "without a reason"
        except Exception as error:  # noqa: BLE001  the edge of this task: whatever it is, the next one may do
            why = repr(error)
        say(f"{what} ended: {why}; beginning again in {AGAIN:g} s")
        await asyncio.sleep(AGAIN)


def _words(options: Options, endpoints: str, role: str) -> Sequence[str]:
    """What a pod of that role runs."""
    own = ["--node-name=$(POD_NAME)", "--local-addr=$(POD_IP)"]
    rest = join_words(options, endpoints)
    return ["elastic-run", *own, *([f"--node-role={role}"] if role else []), *map(literal, rest)]


class Report:
    """The job's status as the ConfigMap has it; each change is told to `job`."""

    def __init__(self, job: ClusterJob) -> None:
        self._job = job
        self._values: dict[str, Any] = {key: job.status[key] for key in COUNTED if key in job.status}
        self._values["state"] = "pending"
        self._control = Control()
        self._quorum = ""
        self._store: Sequence[Json] = ()

    def on_status(self, status: Status) -> None:
        """The job's master says so."""
        states = {"gathering": "pending", "open": "running"}
        if status.round:  # without one, a new leader may not know yet which run it leads
            if status.run != self._values.get("run", status.run):
                self._values["earlier"] = self._values.get("round", 0)
            earlier = self._values.get("earlier", 0)
            incidents = [
                {"round": earlier + each.round, "code": each.reason.code, "reason": str(each.reason)}
                for each in status.incidents
            ]
            before = [each for each in self._values.get("incidents", ()) if each not in incidents]
            incidents = [*before, *incidents][-NEWEST:]
            self._values |= {"run": status.run, "round": earlier + status.round, "incidents": incidents}
        self._values |= {
            "state": states.get(status.state, status.state),
            "workers": status.world_size,
            "reason": str(status.next if status.state in ("gathering", "waiting") else status.reason or status.next),
            "targets": {each.role: {"nodes": each.count, "reason": str(each.reason)} for each in status.targets},
            "datasets": [
                {
                    "name": each.name,
                    "shards": each.shards,
                    "done": each.done,
                    "secondsLeft": _rounded(each.seconds_left),
                }
                for each in status.datasets
            ],
        }
        self._tell()

    def on_plan(self, plan: Plan, replicas: Sequence[Replica]) -> None:
        """The node manager has looked at the pods."""
        live = [each for each in replicas if each.state != "ended" and not each.stopping]
        counts = {state: sum(each.state == state for each in live) for state in ("running", "pending")}
        self._values |= {
            "nodes": counts,
            "waiting": [_waiting(note.replica, note.reason) for note in plan.notes],
        }
        self._tell()

    def on_store(self, waiting: Sequence[Json]) -> None:
        """Those pods of the job's own store do not run."""
        self._store = waiting
        self._tell()

    def on_control(self, control: Control) -> None:
        """The user has suspended the job, resumed or scaled it."""
        self._control = control
        self._tell()

    def on_quorum(self, words: str) -> None:
        """Why the store does not answer; empty where it does."""
        self._quorum = words
        self._tell()

    def ended(self, code: int, why: str) -> Mapping[str, Any]:
        """The status of the job that is over."""
        state = {plan.SUCCEEDED: "succeeded", plan.TIMEOUT: "timeout", plan.REPEATED: "repeated"}.get(code, "failed")
        return self._values | {"state": state, "reason": why, EXIT_CODE: code, "nodes": {"running": 0, "pending": 0}}

    def _tell(self) -> None:
        state: dict[str, str] = {}
        if self._control.suspend:
            state = {"state": "suspended", "reason": "its user has suspended it"}
        elif self._quorum:
            running = self._values["state"] == "running"
            state = {"state": DEGRADED if running else self._values["state"], "reason": self._quorum}
        more: dict[str, Any] = {"waiting": [*self._values.get("waiting", ()), *self._store]}
        if "targets" in self._values:
            more["targets"] = {role: self._within(role, each) for role, each in self._values["targets"].items()}
        self._job.tell(self._values | more | state)

    def _within(self, role: str, target: Json) -> Json:
        """What the job wants of a role, as far as its user allows it."""
        most, why = self._control.scale.get(role, target["nodes"]), "its user has scaled it"
        if self._control.suspend:
            most, why = 0, "its user has suspended it"
        return target if most >= target["nodes"] else {"nodes": most, "reason": why}


def _waiting(pod: str, reason: Tagged) -> Json:
    return {"pod": pod, "code": reason.code, "reason": troubles.with_advice(str(reason))}


def _rounded(seconds: float | None) -> int | None:
    """To two digits, so that what is written does not change all the time."""
    if seconds is None:
        return None
    return int(float(f"{seconds:.2g}"))
