"""A job's own store in the cluster (pure): a StatefulSet of etcd members, and what belongs to it.

    StatefulSet NAME-etcd           its pods run `elastic-run store`
    Service NAME-etcd               gives each member a name: NAME-etcd-0.NAME-etcd
    PodDisruptionBudget NAME-etcd   a drain of machines takes one member at a time

A member's data are in its pod and go with it: one that comes back without them joins the others as a new member. So
the store lives as long as a majority of its pods does at any time. With three, no single pod is special; with one, the
store outlives the master's pod, and not its own.
"""

from collections.abc import Sequence

from ....rendezvous.base.frozen import dataclass
from . import objects
from .objects import COMPONENT, BadRequest, Json, Request
from .pods import JOB, words_of

APPS = "apps/v1"

SIZES = (0, 1, 3)
"""Members that a bundled store can have; 0: there is none, and an etcd runs in the master's pod."""

SUFFIX = "etcd"

PEER_PORT = 12379
"""The members' own traffic: `rendezvous/store/embedded/member_slot.py` puts it there."""

FOLDER = "/var/run/elastic-run-store"

READY = "ready"
"""The file that is there while the member answers."""

GRACE = 15
"""Seconds that a member has to hand its leadership over."""

POLICIES = ("policy/v1", "policy/v1beta1")
"""Versions of the PodDisruptionBudget, the newest first; the second is for Kubernetes before 1.21."""


@dataclass(frozen=True, slots=True)
class Part:
    """An object to be made. `groups`: versions of its API, of which the server's newest is taken; empty: the core."""

    kind: str
    groups: tuple[str, ...]
    object: Json


def name_of(job: str) -> str:
    """Of the store's objects."""
    return f"{job}-{SUFFIX}"


def endpoints(job: str, size: int) -> str:
    """Of all members, as `--rdzv-endpoint` has them. A pod resolves them within its own namespace."""
    return ",".join(f"{name_of(job)}-{index}.{name_of(job)}:{objects.STORE_PORT}" for index in range(size))


def check(size: int, roles: Sequence[str]) -> None:
    """Raises BadRequest where there can be no such store."""
    if size not in SIZES:
        raise BadRequest(
            f"{size} members cannot be a store: 3 survive the loss of any one, 1 outlives the master's pod alone, and "
            "0 is an etcd in the master's pod, for trying out"
        )
    if size and SUFFIX in roles:
        raise BadRequest(f"a role cannot be called {SUFFIX}: the pods of the job's store are")


def parts(request: Request, owner: Json) -> Sequence[Part]:
    """What is to be made for the store, in this order; nothing where the job has none of its own."""
    if not request.store_size:
        return ()
    name, own = name_of(request.name), {JOB: request.name, COMPONENT: "store"}
    metadata = {"name": name, "labels": objects.labels(request.name, "store"), **objects.owned(owner)}
    service = {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": metadata,
        "spec": {
            "clusterIP": "None",
            "publishNotReadyAddresses": True,  # a member is ready when it has found the others by these names
            "selector": own,
            "ports": [{"name": "client", "port": objects.STORE_PORT}, {"name": "peer", "port": PEER_PORT}],
        },
    }
    budget = {
        "kind": "PodDisruptionBudget",
        "metadata": metadata,
        "spec": {"maxUnavailable": 1, "selector": {"matchLabels": own}},
    }
    members = {
        "apiVersion": APPS,
        "kind": "StatefulSet",
        "metadata": metadata,
        "spec": {
            "serviceName": name,
            "replicas": request.store_size,
            "podManagementPolicy": "Parallel",  # none is ready before a majority is there
            "selector": {"matchLabels": own},
            "template": _pod(request),
        },
    }
    return (
        Part("services", (), service),
        Part("poddisruptionbudgets", POLICIES, budget),
        Part("statefulsets", (APPS,), members),
    )


def absent(job: str, size: int, found: Sequence[Json]) -> str:
    """The members that are not ready, each with why, for a person; empty where all are. Without the others none is.

    Args:
        found: the members' pods.
    """
    pods = {str(each["metadata"]["name"]): each for each in found}
    whys: list[str] = []
    for name in (f"{name_of(job)}-{index}" for index in range(size)):
        status: Json = pods[name].get("status") or {} if name in pods else {}
        conditions = {each["type"]: each["status"] for each in status.get("conditions") or ()}
        if name not in pods:
            whys.append(f"{name} has no pod")
        elif conditions.get("Ready") != "True":
            words = words_of(pods[name]) or f"its pod runs, on machine {pods[name]['spec'].get('nodeName')}"
            whys.append(f"{name}: {words}")
    quorum = "no quorum: " if len(whys) > (size - 1) // 2 else ""
    return f"{quorum}{len(whys)} of its {size} members do not answer: {', '.join(whys)}" if whys else ""


def _pod(request: Request) -> Json:
    name = name_of(request.name)
    # Not over HTTP: the cluster cannot prove that it belongs to the job.
    health = {"exec": {"command": ["test", "-e", f"{FOLDER}/{READY}"]}, "periodSeconds": 5, "timeoutSeconds": 3}
    container = {
        "name": "store",
        "image": request.store_image or request.image,
        "command": [
            "elastic-run",
            "store",
            f"--rdzv-endpoint={request.endpoint}",
            f"--member=$(POD_NAME).{name}:{objects.STORE_PORT}",
            "--listen=$(POD_IP)",
            f"--store-dir={FOLDER}",
            f"--ready-file={FOLDER}/{READY}",
            *([] if request.secret else ["--insecure"]),
        ],
        "env": [*objects.downward(), *objects.secret_variable(request)],
        "ports": [{"containerPort": objects.STORE_PORT}, {"containerPort": PEER_PORT}],
        "readinessProbe": health,
        "volumeMounts": [{"name": "data", "mountPath": FOLDER}],
        "resources": {"requests": {"cpu": "100m", "memory": "128Mi"}},
        "terminationMessagePolicy": "FallbackToLogsOnError",
        **objects.pull_policy(request),
    }
    apart = {
        "labelSelector": {"matchLabels": {JOB: request.name, COMPONENT: "store"}},
        "topologyKey": "kubernetes.io/hostname",
    }
    spec: Json = {
        "automountServiceAccountToken": False,
        "terminationGracePeriodSeconds": GRACE,
        # One machine for each if there are so many: what is lost with a machine is one member.
        "affinity": {
            "podAntiAffinity": {
                "preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 100, "podAffinityTerm": apart}]
            }
        },
        "volumes": [{"name": "data", "emptyDir": {}}],
    }
    return objects.beside_nodes(request, container, spec)
