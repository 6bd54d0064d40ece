"""A master's token in other hands, with role.yaml alone and with policy.yaml: needs Kubernetes 1.30 or newer."""

import copy
import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import urllib3

from elastic_run.master.nodes.kubernetes import indexed_job, objects

from .jobs import DEPLOY, Jobs
from .process_kubelet import Kubelet

pytestmark = pytest.mark.xdist_group("kubernetes")

OLDEST = (1, 30)

POLICY = str(DEPLOY / "policy.yaml")

Change = Callable[[Any], Any]


def edited(path: str, value: object) -> Change:
    """A pod with that there."""

    def change(pod: Any) -> None:
        *way, last = path.split("/")
        for word in way:
            pod = pod[int(word)] if word.isdigit() else pod.setdefault(word, {})
        pod[last] = value

    return change


AGENT = "spec/containers/0"

PODS = {
    "of another job": edited("metadata/labels/elastic-run.dev~job", "other"),
    "that the job does not own": edited("metadata/ownerReferences", []),
    "that looks like the store": edited("metadata/labels/elastic-run.dev~component", "store"),
    "named as another job's": edited("metadata/name", "other-worker-0"),
    "named as a node of the job night-b": edited("metadata/name", "night-b-worker-0"),
    "of a role that the job has not": lambda pod: [
        edited("metadata/name", "night-b-worker-0")(pod),
        edited("metadata/labels/elastic-run.dev~role", "b-worker")(pod),
    ],
    "named as a member of another store": edited("metadata/name", "night-b-etcd-0"),
    "of a higher priority": edited("spec/priorityClassName", "night-high"),
    "that is privileged": edited(f"{AGENT}/securityContext", {"privileged": True}),
    "with a capability": edited(f"{AGENT}/securityContext/capabilities", {"add": ["SYS_ADMIN"]}),
    "with a privileged init container": edited(
        "spec/initContainers", [{"name": "i", "image": "i", "securityContext": {"privileged": True}}]
    ),
    "in its machine's network": edited("spec/hostNetwork", True),
    "that sees its machine's processes": edited("spec/hostPID", True),
    "on a machine of its choice": edited("spec/nodeName", "control-plane"),
    "with its machine's files": edited("spec/volumes", [{"name": "v", "hostPath": {"path": "/"}}]),
    "with a foreign Secret in a volume": edited("spec/volumes", [{"name": "v", "secret": {"secretName": "foreign"}}]),
    "with a foreign Secret in a projection": edited(
        "spec/volumes", [{"name": "v", "projected": {"sources": [{"secret": {"name": "foreign"}}]}}]
    ),
    "with a foreign Secret in a variable": edited(
        f"{AGENT}/env", [{"name": "A", "valueFrom": {"secretKeyRef": {"name": "foreign", "key": "k"}}}]
    ),
    "with a foreign Secret as variables": edited(f"{AGENT}/envFrom", [{"secretRef": {"name": "foreign"}}]),
    "with a foreign claim": edited("spec/volumes", [{"name": "v", "persistentVolumeClaim": {"claimName": "foreign"}}]),
    "with another account": edited("spec/serviceAccountName", "elastic-run"),
    "with its account's token": edited("spec/automountServiceAccountToken", True),
    "with a token in a projection": edited(
        "spec/volumes", [{"name": "v", "projected": {"sources": [{"serviceAccountToken": {"path": "t"}}]}}]
    ),
}
"""Pods that the token of the master of `night` cannot make, with the policy."""

ALLOWED = {
    "as the job has them": lambda pod: None,
    "with the job's own Secret": edited("spec/volumes", [{"name": "v", "secret": {"secretName": "night"}}]),
    "with what the namespace allows": edited(
        "spec/volumes",
        [
            {"name": "v", "persistentVolumeClaim": {"claimName": "data"}},
            {"name": "s", "secret": {"secretName": "s3"}},
            {"name": "e", "emptyDir": {}},
        ],
    ),
    "with an account that the namespace allows": edited("spec/serviceAccountName", "train"),
    "of a priority that the namespace allows": edited("spec/priorityClassName", "night-shared"),
    "of no priority": lambda pod: pod["spec"].pop("priorityClassName"),
    "that was tried before": edited("metadata/name", "night-worker-9-1"),
}


CLASSES = ("night-low", "night-high", "night-shared")
"""Of priority: the job's, one that it has not, and one of the namespace."""


class Holder:
    """Who has the token of a master."""

    def __init__(self, jobs: Jobs) -> None:
        self._jobs = jobs
        (pod,) = jobs.running("master", "night").values()
        reference = {"apiVersion": "v1", "kind": "Pod", "name": pod["metadata"]["name"], "uid": pod["metadata"]["uid"]}
        body = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {"boundObjectRef": reference}}
        where = f"/api/v1/namespaces/{jobs.namespace}/serviceaccounts/{objects.SERVICE_ACCOUNT}/token"
        words = ("create", "--raw", where, "-f", "-")
        self._token = json.loads(jobs.plane.kubectl(*words, data=json.dumps(body)))["status"]["token"]
        trust = str(jobs.plane.folder / "certificates" / "apiserver.crt")
        self._pool = urllib3.PoolManager(ca_certs=trust, retries=False, timeout=10.0)

    def tries(self, method: str, path: str, body: Any = None, group: str = "") -> str:
        """The server's refusal of what would be done; empty where it would do it."""
        kind = "application/merge-patch+json" if method == "PATCH" else "application/json"
        headers = {"Authorization": f"Bearer {self._token}", "Content-Type": kind}
        root = f"/apis/{group}" if group else "/api/v1"
        url = f"{self._jobs.plane.url}{root}/namespaces/{self._jobs.namespace}/{path}?dryRun=All"
        answer = self._pool.request(method, url, body=None if body is None else json.dumps(body), headers=headers)
        return "" if answer.status < 300 else f"{answer.status} {json.loads(answer.data)['message']}"

    def makes(self, change: Change) -> str:
        """The refusal of a pod that is the job's but for that."""
        data = self._jobs.find("configmaps", "night")["data"]
        pod = copy.deepcopy(json.loads(data[objects.TEMPLATES])["templates"][""])
        pod["metadata"] |= {"name": "night-worker-9"}
        pod["metadata"]["ownerReferences"] = [objects.owner_of(self._jobs.job("night"))]
        pod["metadata"]["labels"] = {key.replace("/", "~"): value for key, value in pod["metadata"]["labels"].items()}
        change(pod)
        pod["metadata"]["labels"] = {key.replace("~", "/"): value for key, value in pod["metadata"]["labels"].items()}
        return self.tries("POST", "pods", pod)

    def queues(self, change: Change, name: str = "night-worker") -> str:
        """The refusal of the Job of a role's nodes, as a job with a queue has it, but for that in its pods."""
        data = self._jobs.find("configmaps", "night")["data"]
        template = objects.with_command(json.loads(data[objects.TEMPLATES])["templates"][""], ["true"])
        change(template)
        made = indexed_job.made("night", "", template, objects.owner_of(self._jobs.job("night")), "queue", 1)
        made["metadata"]["name"] = name
        return self.tries("POST", "jobs", made, objects.BATCH)

    def others(self) -> dict[str, str]:
        """The refusals of what it tries with what is there already, by what that is."""
        own, foreign = "night", "other"
        scale = {"spec": {"replicas": 0}}
        return {
            "delete a foreign pod": self.tries("DELETE", "pods/foreign"),
            "scale a foreign StatefulSet": self.tries("PATCH", f"statefulsets/{foreign}-etcd/scale", scale, "apps/v1"),
            "stop a foreign Job": self.tries("PATCH", f"jobs/{foreign}", {"spec": {"suspend": True}}, objects.BATCH),
            "write a foreign status": self.tries("PATCH", f"configmaps/{foreign}", {"data": {objects.STATUS: "{}"}}),
            "change its own template": self.tries("PATCH", f"configmaps/{own}", {"data": {objects.TEMPLATES: "{}"}}),
            "a queued node that is privileged": self.queues(edited(f"{AGENT}/securityContext", {"privileged": True})),
            "queued nodes of a higher priority": self.queues(edited("spec/priorityClassName", "night-high")),
            "queued nodes of another name": self.queues(lambda pod: None, "other-worker"),
            "take its own control away": self.tries("PATCH", f"configmaps/{own}", {"data": {objects.CONTROL: None}}),
        }


@pytest.fixture
def night(jobs: Jobs, machine: Kubelet) -> Iterator[Jobs]:
    """A job with a store, and beside it what is another's."""
    plane = jobs.plane
    if plane.version < OLDEST:
        pytest.skip("an admission policy needs Kubernetes 1.30: name one with ELASTIC_RUN_TEST_KUBERNETES=FOLDER")
    labels = {"elastic-run.dev/job": "other"}
    container = {"name": "c", "image": "missing"}
    pod = {"spec": {"containers": [container], "restartPolicy": "Never"}}
    template = {"metadata": {"labels": labels}, "spec": {"containers": [container]}}
    members = {"replicas": 0, "serviceName": "s", "selector": {"matchLabels": labels}, "template": template}
    # What the policy refuses must not be refused by PodSecurity.
    plane.kubectl("label", "namespace", jobs.namespace, "pod-security.kubernetes.io/enforce=privileged", "--overwrite")
    for version, kind, name, more in (
        ("v1", "Pod", "foreign", pod),
        ("v1", "ServiceAccount", "train", {}),
        ("v1", "ConfigMap", "other", {"data": {}}),
        (objects.BATCH, "Job", "other", {"spec": {"suspend": True, "template": pod}}),
        ("apps/v1", "StatefulSet", "other-etcd", {"spec": members}),
    ):
        metadata = {"name": name, "namespace": jobs.namespace, "labels": objects.labels("other", "job")}
        plane.apply({"apiVersion": version, "kind": kind, "metadata": metadata, **more})
    for name in CLASSES:
        priority = {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": name}}
        plane.apply({**priority, "value": 5})
    allowed = "elastic-run.dev/allowed=secret/s3 persistentvolumeclaim/data serviceaccount/train"
    allowed += " priorityclass/night-shared"
    plane.kubectl("annotate", "namespace", jobs.namespace, allowed)
    plane.kubectl("apply", "-n", jobs.namespace, "-f", str(DEPLOY / "role-queue.yaml"))
    jobs.submit("night", "--nnodes=1:2", "--store-replicas=1", "--priority-class=night-low", outside=False)
    jobs.until("night", 2)
    yield jobs
    plane.kubectl("delete", "-f", POLICY, "--ignore-not-found")
    plane.kubectl("delete", "priorityclasses", *CLASSES)


def test_a_masters_token_does_with_the_policy_what_its_job_needs_and_nothing_else(night: Jobs) -> None:
    holder = Holder(night)
    assert {name: holder.makes(change) for name, change in (PODS | ALLOWED).items()} == dict.fromkeys(
        PODS | ALLOWED, ""
    )
    assert set(holder.others().values()) == {""}, holder.others()
    night.plane.kubectl("apply", "-f", POLICY)
    night.wait(lambda: "elastic-run-master" in holder.tries("DELETE", "pods/foreign"), lambda: "the policy to hold")
    for name, refusal in ({name: holder.makes(change) for name, change in PODS.items()} | holder.others()).items():
        assert "elastic-run-master" in refusal and "denied" in refusal, f"{name}: {refusal or 'allowed'}"
        assert "failed expression" not in refusal and "error" not in refusal, f"{name}: {refusal}"
    assert {name: holder.makes(change) for name, change in ALLOWED.items()} == dict.fromkeys(ALLOWED, "")
    assert holder.queues(lambda pod: None) == ""
    checked = night.plane.get("validatingadmissionpolicy", "elastic-run-master").get("status", {})
    assert not checked.get("typeChecking", {}).get("expressionWarnings"), checked
    # The job itself goes on: a node is deleted and made, the status written, and the store ended.
    night.run("scale", "night", "1")
    night.until("night", 1)
    (master,) = night.running("master")
    night.plane.kubectl("delete", "pod", master, "-n", night.namespace, "--grace-period=0", "--force")
    night.wait(lambda: set(night.running("master")) - {master}, lambda: "another master")
    night.run("scale", "night", "2")
    night.until("night", 2)
    night.release()
    night.run("wait", "night")
    night.wait(lambda: not night.running("store"), lambda: "the store to end")
