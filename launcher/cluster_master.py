"""The master's pod in a Kubernetes cluster: it starts the job's other pods, and writes how the job is."""

import asyncio
import os
from collections.abc import Mapping, Sequence
from typing import Any

from ..elastic_agent import plan
from ..master.nodes.kubernetes import objects
from ..master.nodes.kubernetes.api import Api
from ..master.nodes.kubernetes.cluster import KubernetesPlatform
from ..master.nodes.kubernetes.job import ClusterJob
from ..master.nodes.kubernetes.objects import JOB_VARIABLE, literal
from ..master.nodes.node_manager import NodeManager
from ..master.nodes.platform import PlatformError, PlatformRefused
from ..master.nodes.reconcile import Plan
from ..master.nodes.relaunch import Limits
from ..master.nodes.replica import Replica
from ..master.status import Status
from ..rendezvous import membership
from ..rendezvous.cancel import cancel
from ..rendezvous.keys import Keys
from .managed_nodes import Start, Wish, managed
from .settings import Options, join_words

EXIT_CODE = "exitCode"
"""The key that only the status of a job that is over has."""


async def lead(start: Start, endpoints: str) -> tuple[int, str]:
    """Leads the job of this pod until it is over. Raises PlatformError, StoreError."""
    name = os.environ.get(JOB_VARIABLE)
    if not name:
        raise PlatformRefused(
            f"--platform=kubernetes is for the pod that elastic-job submit makes ({JOB_VARIABLE} is not set here). To "
            "run a job in the cluster: elastic-job submit --image=IMAGE --nnodes=2:8 -- train.py"
        )
    api = Api.load()
    job = ClusterJob(api, name, start.say)
    try:
        await job.load()
        if EXIT_CODE in job.status:  # another master has ended the job, and was lost before its own end was seen
            return int(job.status[EXIT_CODE]), str(job.status.get("reason", ""))
        # Each submission has an id of its own in the store: who has succeeded there is this job.
        if await membership.refuse_if_over(start.store, Keys(start.options.job_id), own_run=""):
            code, why = plan.SUCCEEDED, "the job has succeeded, and its master was lost then"
            await job.end(Report(job).ended(code, why))
            return code, why
        return await _lead(start, endpoints, api, job)
    finally:
        api.close()


async def _lead(start: Start, endpoints: str, api: Api, job: ClusterJob) -> tuple[int, str]:
    now = asyncio.get_running_loop().time
    templates = {
        role: objects.with_command(pod, _words(start.options, endpoints, role)) for role, pod in job.templates.items()
    }
    report = Report(job)
    platform = KubernetesPlatform(api, job.name, job.owner, templates, now)
    manager = NodeManager(platform, start.say, now, Limits(memory_cap=job.memory_cap), report.on_plan)
    wish = Wish()

    def on_control() -> None:
        control = job.control
        wish.change(control.scale, suspended=control.suspend, cancelled=control.cancel)
        report.on_control(suspended=control.suspend)

    on_control()
    tasks = [
        asyncio.create_task(job.follow(on_control), name="what the user wants"),
        asyncio.create_task(job.write(), name="the job's status"),
    ]
    try:
        code, why = await managed(start, manager, wish, report.on_status)
    finally:
        await cancel(*tasks)
    # Where this pod was told to go, or has lost the store, the job goes on, and another master will lead it.
    if code < 128 and code != plan.STORE_LOST:
        try:
            await job.end(report.ended(code, why))
            if code:
                await job.no_other_master()
        except (PlatformError, TimeoutError) as error:
            start.say(f"the end of the job could not be written: {error}")
    return code, why


def _words(options: Options, endpoints: str, role: str) -> Sequence[str]:
    """What a pod of that role runs."""
    own = ["--node-name=$(POD_NAME)", "--local-addr=$(POD_IP)"]
    rest = join_words(options, endpoints)
    return ["elastic-run", *own, *([f"--node-role={role}"] if role else []), *map(literal, rest)]


class Report:
    """The job's status as the ConfigMap has it; each change is told to `job`."""

    def __init__(self, job: ClusterJob) -> None:
        self._job = job
        self._values: dict[str, Any] = {"state": "pending"}
        self._suspended = False

    def on_status(self, status: Status) -> None:
        """The job's master says so."""
        states = {"gathering": "pending", "open": "running"}
        self._values |= {
            "state": states.get(status.state, status.state),
            "round": status.round,
            "workers": status.world_size,
            "reason": str(status.next if status.state in ("gathering", "waiting") else status.reason or status.next),
            "targets": {each.role: {"nodes": each.count, "reason": str(each.reason)} for each in status.targets},
            "incidents": [
                {"round": each.round, "code": each.reason.code, "reason": str(each.reason)} for each in status.incidents
            ],
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
            "waiting": [
                {"pod": note.replica, "code": note.reason.code, "reason": str(note.reason)} for note in plan.notes
            ],
        }
        self._tell()

    def on_control(self, *, suspended: bool) -> None:
        """The user has suspended the job, or resumed it."""
        self._suspended = suspended
        self._tell()

    def ended(self, code: int, why: str) -> Mapping[str, Any]:
        """The status of the job that is over."""
        state = {plan.SUCCEEDED: "succeeded", plan.TIMEOUT: "timeout", plan.REPEATED: "repeated"}.get(code, "failed")
        return self._values | {"state": state, "reason": why, EXIT_CODE: code, "nodes": {"running": 0, "pending": 0}}

    def _tell(self) -> None:
        suspended = {"state": "suspended", "reason": "its user has suspended it"} if self._suspended else {}
        self._job.tell(self._values | suspended)


def _rounded(seconds: float | None) -> int | None:
    """To two digits, so that what is written does not change all the time."""
    if seconds is None:
        return None
    return int(float(f"{seconds:.2g}"))
