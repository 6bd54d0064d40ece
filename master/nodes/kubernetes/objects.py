"""The objects of one job as the API has them (pure): the Job that holds the master up, a ConfigMap, and pod templates.

    Job NAME                the master's pod, started again by the cluster when it is lost; owns everything else
    ├── ConfigMap NAME      how pods look (templates), what the user wants now (control), how the job is (status)
    ├── ConfigMap NAME-model: the file of a model in four functions, and those beside it
    ├── Secret NAME         what master, nodes and store prove with that they belong to the job
    ├── StatefulSet NAME-etcd and its Service: the store (`store.py`), unless another is given
    └── Pods NAME-ROLE-N    the nodes, which the master starts

So deleting the Job deletes everything, and a master that comes back finds its nodes where they are.
"""

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any, cast

from ....rendezvous.base.frozen import dataclass, field, replace
from ....rendezvous.identity.secret import VARIABLE
from .model_volume import mount_model
from .pods import CONTAINER, HIGH_PRIORITY, JOB, PREFIX

Json = Mapping[str, Any]
"""An object of the API (hence Any)."""

COMPONENT = f"{PREFIX}/component"
"""The label that tells a master's pod from a node's."""

TEMPLATES, CONTROL, STATUS = "templates.json", "control.json", "status.json"
"""Keys of the ConfigMap."""

EXIT_CODE = "exitCode"
"""The key that only the status of a job that is over has."""

SECRET_KEY = "secret"
"""Of the job's Secret."""

APPLIED = f"{PREFIX}/applied"
"""Annotation of the ConfigMap of a job whose objects were applied by hand: nothing owns them."""

JOB_VARIABLE = "ELASTIC_RUN_KUBERNETES_JOB"
"""In the master's pod: the name of its Job."""

BATCH = "batch/v1"

QUEUE = "kueue.x-k8s.io/queue-name"
"""Label of a Job: the LocalQueue of Kueue that admits it."""

SERVICE_ACCOUNT = "elastic-run"
"""Of the master's pods: `deploy/kubernetes/role.yaml` makes it, with its rights."""

ATTEMPTS = 1000
"""Masters of a job that may be lost. Each one sets that limit when it begins, and lowers it when the job is over: until
then the cluster's own holds (6, which takes some ten minutes), so that it ends a Job whose command cannot run."""

LONGEST_NAME = 40
"""Characters of a job's name: with role, index and attempt it is a pod's, which has 63."""

GRACE_MORE = 15
"""Seconds of a pod's grace period beyond what its workers have to end."""

STORE_PORT = 2379
"""Of a store inside the master's pod."""

EVERY_POD = (
    *("securityContext", "serviceAccountName", "imagePullSecrets", "tolerations", "nodeSelector", "runtimeClassName"),
    *("schedulerName", "priorityClassName", "dnsPolicy", "dnsConfig", "hostAliases", "hostUsers"),
)
"""Of the user's pod, the fields that hold for master and store as well; the rest is for the nodes alone."""

PROCESS = ("runAsUser", "runAsGroup", "runAsNonRoot", "seccompProfile", "appArmorProfile", "seLinuxOptions")
"""Of the security context of the agent's container, the same; more rights, such as `privileged`, are for it alone."""

NODES_ALONE = (f"{PREFIX}/", "kueue.x-k8s.io/", "container.")
"""Labels and annotations that hold for no other pod begin so: ours, a queue's, and those of a container by its name."""

EVICTABLE = "cluster-autoscaler.kubernetes.io/safe-to-evict"
"""Annotation without which the autoscaler keeps a machine for a pod that no Job controls, or that has an `emptyDir`."""

LIMITS: Mapping[str, Json] = {
    "master": {"cpu": "2", "memory": "2Gi", "ephemeral-storage": "2Gi"},
    "store": {"cpu": "1", "memory": "1Gi", "ephemeral-storage": "2Gi"},
}
"""Many times what each needs, for a namespace whose quota admits no pod without them."""

LOST: Mapping[str, Mapping[str, int | None]] = {
    "node": {"not-ready": 30, "unreachable": 30},
    "master": {"not-ready": 30, "unreachable": 30},
    "store": {"unreachable": None},
}
"""Seconds that a pod stays on a machine that is so, in place of the cluster's five minutes; None: for ever.

A cluster puts no other member of a store in the place of one on a machine that it does not reach, and one that it has
told to go loses its data when that machine is back.
"""


class BadRequest(ValueError):
    """The job cannot be described so; the message says what to change."""


@dataclass(frozen=True, slots=True)
class Request:
    """A job to be submitted.

    Attributes:
        name: of the job, and of its objects.
        run: what this submission is called in the store, where another of the same name may have left its keys.
        image: with elastic-run, the script and all that it imports.
        flags: of `elastic-run`, equal on all nodes; without those that say where and who a node is.
        command: the script and its own arguments.
        roles: their names; one that is empty where the job has none.
        endpoint: the store; empty: an etcd in the master's pod, whose data go with that pod.
        queue: the LocalQueue of Kueue that admits the nodes; empty: they wait for nobody but the scheduler.
        master_queue: the one that admits the master; empty: it waits for no queue.
        store_size: members of a store that is made for this job (`store.py`), at `endpoint`; 0: none is made.
        store_image: of those members; empty: the job's.
        secret: the name of the Secret with the job's secret; empty: the job has none (`--insecure`).
        cpu, memory: what each node asks for, as the API writes amounts; empty: nothing is said.
        gpus: NVIDIA's, of each node.
        priority_class: of the nodes; lower ones are the first that the cluster takes back.
        high_priority_class: of the nodes that the cluster is to take back last; empty: there are none.
        high_priority: by role, so many of its nodes have that class, those with the lowest indexes.
        master_priority_class: of the master, which needs little; empty: the highest of its nodes. Of pods with one
            priority the cluster takes the youngest first, and the master is the oldest.
        service_account: of the master.
        image_pull_policy: as the API has it; empty: the cluster's default.
        env: for the script.
        template: a pod that the nodes are made of, whatever it says; of master and store it says `EVERY_POD`.
        grace: seconds that a node's workers have to end.
        memory_cap: bytes up to which a node that was out of memory gets more; 0: it gets no more.
        patience: seconds that the cluster has for a first master to begin, who lifts that limit; 0: without end.
        ttl: seconds after the job's end until the cluster deletes the Job, with all that it owns; None: it stays.
        model: files that each node has in `model_volume.MODEL_FOLDER`, by name.
    """

    name: str
    run: str
    image: str
    flags: Sequence[str]
    command: Sequence[str]
    roles: Sequence[str] = ("",)
    endpoint: str = ""
    queue: str = ""
    master_queue: str = ""
    store_size: int = 0
    store_image: str = ""
    secret: str = ""
    cpu: str = ""
    memory: str = ""
    gpus: int = 0
    priority_class: str = ""
    high_priority_class: str = ""
    high_priority: Mapping[str, int] = field(default_factory=dict[str, int])
    master_priority_class: str = ""
    service_account: str = SERVICE_ACCOUNT
    image_pull_policy: str = ""
    env: Mapping[str, str] = field(default_factory=dict[str, str])
    template: Json = field(default_factory=dict[str, Any])
    grace: float = 30.0
    memory_cap: int = 0
    patience: int = 0
    ttl: int | None = None
    model: Mapping[str, bytes] = field(default_factory=dict[str, bytes])


@dataclass(frozen=True, slots=True)
class Control:
    """What the user wants of a job that is there.

    Attributes:
        scale: by role, at most so many nodes; roles that are missing have their maximum.
        suspend: no node at all, until it is resumed.
        cancel: the job is to end, as failed.
    """

    scale: Mapping[str, int] = field(default_factory=dict[str, int])
    suspend: bool = False
    cancel: bool = False

    @classmethod
    def read(cls, text: str) -> "Control":
        """What `text` says; whatever it does not say, or says in another shape, is as at first."""
        try:
            raw = json.loads(text)
        except ValueError:
            return cls()
        if not isinstance(raw, dict):
            return cls()
        found = cast(dict[str, Any], raw)
        scale = found.get("scale")
        counts: dict[str, int] = {}
        if isinstance(scale, dict):
            for role, count in cast(dict[str, Any], scale).items():
                if isinstance(count, int) and not isinstance(count, bool) and count >= 0:
                    counts[role] = count
        return cls(counts, found.get("suspend") is True, found.get("cancel") is True)

    @property
    def text(self) -> str:
        """What `read` reads."""
        return json.dumps({"scale": dict(self.scale), "suspend": self.suspend, "cancel": self.cancel})

    def changed(self, **changes: Any) -> "Control":
        """With these fields in place of its own."""
        return replace(self, **changes)


def check_name(name: str) -> str:
    """The name. Raises BadRequest where no object may have it."""
    if not re.fullmatch(r"[a-z]([-a-z0-9]*[a-z0-9])?", name) or len(name) > LONGEST_NAME:
        raise BadRequest(
            f"{name!r} cannot be a job's name: at most {LONGEST_NAME} lowercase letters, digits and hyphens, of which "
            "the first is a letter and the last no hyphen"
        )
    return name


def literal(word: str) -> str:
    """`word` so that the cluster does not put variables into it."""
    return word.replace("$(", "$$(")


def labels(name: str, component: str) -> dict[str, str]:
    """Of each object of a job."""
    return {"app.kubernetes.io/managed-by": "elastic-run", JOB: name, COMPONENT: component}


def master_job(request: Request) -> Json:
    """The Job whose only pod is the master's."""
    endpoint = literal(request.endpoint) or f"$(POD_IP):{STORE_PORT}"
    words = ["elastic-run", "master", "--platform=kubernetes", f"--rdzv-endpoint={endpoint}"]
    words += [f"--rdzv-id={request.run}", "--node-name=$(POD_NAME)", "--local-addr=$(POD_IP)"]
    words += [literal(word) for word in (*request.flags, *request.command)]
    container = {
        "name": "master",
        "image": request.image,
        "command": words,
        "env": [*downward(), *secret_variable(request), {"name": JOB_VARIABLE, "value": request.name}],
        "terminationMessagePolicy": "FallbackToLogsOnError",
        "resources": {"requests": {"cpu": "100m", "memory": "256Mi"}},
        **pull_policy(request),
    }
    return {
        "apiVersion": BATCH,
        "kind": "Job",
        "metadata": {
            "name": request.name,
            "labels": {
                **labels(request.name, "job"),
                **({QUEUE: request.master_queue} if request.master_queue else {}),
            },
        },
        "spec": {
            "completions": 1,
            "parallelism": 1,
            **({} if request.ttl is None else {"ttlSecondsAfterFinished": request.ttl}),
            **({"activeDeadlineSeconds": request.patience} if request.patience else {}),
            "template": beside_nodes(
                request, container, {"restartPolicy": "Never", "serviceAccountName": request.service_account}
            ),
        },
    }


def beside_nodes(request: Request, container: Json, spec: Json) -> Json:
    """A pod's template for that container, the master's or a member's of the store: all without which no job goes on.

    What holds for every pod it has as the nodes have it.
    """
    node, component = node_template(request, request.roles[0]), container["name"]
    agent = next(each for each in node["spec"]["containers"] if each["name"] == CONTAINER)
    given, most = _at(_at(agent, "resources"), "limits"), LIMITS[component]
    limits = {key: amount for key, amount in most.items() if key in given}
    more = {"resources": {**container["resources"], **({"limits": limits} if limits else {})}}
    more["securityContext"] = {key: value for key, value in agent["securityContext"].items() if key in PROCESS}
    priority = request.master_priority_class or request.high_priority_class or request.priority_class
    made = {
        **{key: value for key, value in node["spec"].items() if key in EVERY_POD},
        "tolerations": tolerations(request, component),
        **({"priorityClassName": priority} if priority else {}),
        **spec,
        "containers": [{**container, **more}],
    }
    metadata = {
        kind: {key: value for key, value in given.items() if not key.startswith(NODES_ALONE)}
        for kind, given in node["metadata"].items()
    }
    metadata["labels"] |= labels(request.name, component)
    return {"metadata": metadata, "spec": restricted(made)}


def tolerations(request: Request, component: str) -> list[Json]:
    """Of the template, and those of `LOST` of which it says nothing."""
    given = cast(Sequence[Json], _at(request.template, "spec").get("tolerations") or ())
    here = {each.get("key", "") for each in given if each.get("effect", "NoExecute") in ("", "NoExecute")}
    own: list[Json] = []
    for state, seconds in LOST[component].items():
        if not here & {"", key := f"node.kubernetes.io/{state}"}:
            limit = {} if seconds is None else {"tolerationSeconds": seconds}
            own.append({"key": key, "operator": "Exists", "effect": "NoExecute", **limit})
    return [*given, *own]


def restricted(spec: Json) -> Json:
    """That pod's spec, which conforms to PodSecurity `restricted` as far as it does not say otherwise itself."""
    made = _copied(spec)
    given, may_be_root = _at(made, "securityContext"), _at(made, "securityContext").get("runAsUser") == 0
    security = {"seccompProfile": {"type": "RuntimeDefault"}, "runAsNonRoot": not may_be_root, **given}
    for container in (*(made.get("initContainers") or ()), *made["containers"]):
        own = container["securityContext"] = dict(_at(container, "securityContext"))
        if "runAsUser" in own and "runAsNonRoot" not in given:
            own.setdefault("runAsNonRoot", own["runAsUser"] != 0)
        capabilities = _at(own, "capabilities")
        if not own.get("privileged") and "CAP_SYS_ADMIN" not in (capabilities.get("add") or ()):
            own.setdefault("allowPrivilegeEscalation", False)  # which the API refuses beside those
        if own.get("runAsNonRoot", security["runAsNonRoot"]):  # root without them could not do what it is root for
            own["capabilities"] = {"drop": ["ALL"], **capabilities}
    return {**made, "securityContext": security}


def owned(owner: Json) -> dict[str, Any]:
    """The part of an object's metadata that says what it goes with; nothing where `owner` is empty."""
    return {"ownerReferences": [owner]} if owner else {}


def secret(request: Request, owner: Json, text: str) -> Json:
    """The job's secret; `text` as `Secret.text` has it. `owner`: as for `config_map`."""
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "type": "Opaque",
        "metadata": {"name": request.secret, "labels": labels(request.name, "secret"), **owned(owner)},
        "stringData": {SECRET_KEY: text},
        "immutable": True,  # or another, applied over it, would part the store from the nodes that come later
    }


def secret_variable(request: Request) -> list[Json]:
    """By which a container is given the job's secret, without its text in any pod's spec."""
    if not request.secret:
        return []
    return [{"name": VARIABLE, "valueFrom": {"secretKeyRef": {"name": request.secret, "key": SECRET_KEY}}}]


def config_map(
    request: Request, owner: Json, control: Control | None = None, annotations: Mapping[str, str] | None = None
) -> Json:
    """What the master reads and writes.

    Args:
        owner: see `owner_of`; empty for an object that a user applies, who cannot know the owner's uid. What the user
            wants and how the job is are not in that one: to apply it again must not take them back.
    """
    templates = {role: node_template(request, role) for role in request.roles}
    applied = {} if owner else {APPLIED: "true"}
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {
            "name": request.name,
            "labels": labels(request.name, "job"),
            **owned(owner),
            **({"annotations": {**(annotations or {}), **applied}} if annotations or applied else {}),
        },
        "data": {
            TEMPLATES: json.dumps(
                {
                    "templates": templates,
                    "memoryCap": request.memory_cap,
                    "storeSize": request.store_size,
                    "queue": request.queue,
                }
            ),
            **({CONTROL: (control or Control()).text, STATUS: "{}"} if owner else {}),
        },
    }


def status_of(config_map: Json) -> Json:
    """What the master has written there of the job; empty where it has written nothing yet."""
    try:
        found = json.loads(_at(config_map, "data").get(STATUS) or "{}")
    except ValueError:
        return {}
    return cast(Json, found) if isinstance(found, dict) else {}


def node_template(request: Request, role: str) -> Json:
    """A pod that runs a node of that role; the master gives it name, owner and command."""
    given = _copied(request.template)
    metadata, spec = _at(given, "metadata"), _at(given, "spec")
    containers = cast(list[dict[str, Any]], spec.get("containers") or [{}])
    agent = next((each for each in containers if each.get("name") == CONTAINER), containers[0])
    agent["name"] = CONTAINER
    agent["image"] = request.image or agent.get("image", "")
    given_here = [*downward(), *secret_variable(request)]
    own = {each["name"] for each in given_here} | set(request.env)
    more = [{"name": name, "value": value} for name, value in request.env.items()]
    given_env = cast(Sequence[Json], agent.get("env") or ())
    agent["env"] = [*given_here, *(each for each in given_env if each.get("name") not in own), *more]
    for each in (*containers, *(spec.get("initContainers") or ())):  # whichever fails is told with its last words
        each.setdefault("terminationMessagePolicy", "FallbackToLogsOnError")
    agent.update(pull_policy(request))
    if request.model:
        mount_model(request.name, spec, agent)
    resources = agent["resources"] = _at(agent, "resources")
    for amount, key in ((request.cpu, "cpu"), (request.memory, "memory"), (str(request.gpus or ""), "nvidia.com/gpu")):
        if amount:
            resources["requests"] = {**_at(resources, "requests"), key: amount}
            if key != "cpu":  # a CPU beyond what was asked for is nobody's loss
                resources["limits"] = {**_at(resources, "limits"), key: amount}
    spec |= {
        "containers": containers,
        "restartPolicy": "Never",
        "tolerations": tolerations(request, "node"),
        "terminationGracePeriodSeconds": int(request.grace) + GRACE_MORE,
        **({"priorityClassName": request.priority_class} if request.priority_class else {}),
    }
    spec.setdefault("automountServiceAccountToken", False)
    if spec.get("hostNetwork"):  # or it would not know the names of the store's members
        spec.setdefault("dnsPolicy", "ClusterFirstWithHostNet")
    own_labels = {**_at(metadata, "labels"), **labels(request.name, "node")}
    annotations = {EVICTABLE: "true", **_at(metadata, "annotations")}
    if first := request.high_priority.get(role, 0):
        annotations = {**annotations, HIGH_PRIORITY: f"{first} {request.high_priority_class}"}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"labels": own_labels, "annotations": annotations},
        "spec": restricted(spec),
    }


def with_command(template: Json, words: Sequence[str]) -> Json:
    """The pod of `template` with that command for its node."""
    pod = _copied(template)
    agent = next(each for each in pod["spec"]["containers"] if each["name"] == CONTAINER)
    agent["command"] = list(words)
    agent.pop("args", None)
    return pod


def owner_of(job: Json) -> Json:
    """The reference to a Job by which its objects go with it."""
    metadata = job["metadata"]
    return {
        "apiVersion": BATCH,
        "kind": "Job",
        "name": metadata["name"],
        "uid": metadata.get("uid", ""),
        # The Job's controller would let go of pods that are not of its own making.
        "controller": False,
        "blockOwnerDeletion": False,
    }


def controller_of(config_map: Json) -> Json:
    """The reference to a job's ConfigMap that says who controls the nodes' pods."""
    metadata = config_map["metadata"]
    name, uid = metadata["name"], metadata.get("uid", "")
    made = {"apiVersion": "v1", "kind": "ConfigMap", "name": name, "uid": uid}
    return {**made, "controller": True, "blockOwnerDeletion": False}


def _copied(value: Json) -> dict[str, Any]:
    return cast(dict[str, Any], json.loads(json.dumps(dict(value))))


def _at(value: Json, name: str) -> dict[str, Any]:
    return cast(dict[str, Any], value.get(name) or {})


def downward() -> list[Json]:
    """The variables by which a pod knows its name and its address."""
    return [
        {"name": "POD_NAME", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}},
        {"name": "POD_IP", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}},
    ]


def pull_policy(request: Request) -> dict[str, str]:
    """Of each container whose image is the job's."""
    return {"imagePullPolicy": request.image_pull_policy} if request.image_pull_policy else {}
