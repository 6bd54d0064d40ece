"""What the double of a Kubernetes API keeps: objects, versions, and who may do what (`api_double.py` serves it).

Each rule here is one that the real server has, as far as elastic-run relies on it; `test_conformance.py` asks both.
Kinds are not known in advance: whatever is created is kept, without a schema.
"""

import base64
import copy
import datetime
import json
import threading
import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

Json = Any
"""An object of the API."""

ADMIN = "admin"
"""Who may do everything."""

KINDS = {
    "pods": "Pod",
    "configmaps": "ConfigMap",
    "jobs": "Job",
    "namespaces": "Namespace",
    "nodes": "Node",
    "secrets": "Secret",
    "services": "Service",
    "serviceaccounts": "ServiceAccount",
    "statefulsets": "StatefulSet",
    "events": "Event",
    "roles": "Role",
    "rolebindings": "RoleBinding",
    "resourcequotas": "ResourceQuota",
}

RBAC = "rbac.authorization.k8s.io/v1"

FOREGROUND = "foregroundDeletion"


class Refused(Exception):
    """The answer is no. `status`: of HTTP; `reason`: the API's own word."""

    def __init__(self, status: int, reason: str, message: str) -> None:
        super().__init__(message)
        self.status = status
        self.reason = reason

    @property
    def body(self) -> Json:
        """As the API says it."""
        return {
            "kind": "Status",
            "apiVersion": "v1",
            "metadata": {},
            "status": "Failure",
            "message": str(self),
            "reason": self.reason,
            "code": self.status,
        }


@dataclass(frozen=True, slots=True)
class Place:
    """Where objects of a kind are. `group`: with its version; `namespace`: empty for all, or where a kind has none."""

    group: str
    namespace: str
    plural: str

    @property
    def resource(self) -> str:
        """As messages name it."""
        group = self.group.rpartition("/")[0]
        return f"{self.plural}.{group}" if group else self.plural

    def holds(self, other: "Place") -> bool:
        """Whether objects there are among those that a list of this place shows."""
        same = (self.group, self.plural) == (other.group, other.plural)
        return same and self.namespace in ("", other.namespace)


@dataclass(frozen=True, slots=True)
class Change:
    """`before` is empty for what is new, and `after` is the last state of what is gone."""

    revision: int
    kind: str
    place: Place
    before: Json
    after: Json


@dataclass(frozen=True, slots=True)
class Selector:
    """Which objects of a place are meant."""

    labels: Sequence[tuple[str, str, str]] = ()
    fields: Sequence[tuple[str, str, str]] = ()

    @classmethod
    def read(cls, labels: str, fields: str) -> "Selector":
        """Of `a=b,c!=d,e` each."""
        return cls(tuple(_terms(labels)), tuple(_terms(fields)))

    def takes(self, found: Json) -> bool:
        """Whether it is one of them."""
        if not found:
            return False
        own = found["metadata"].get("labels") or {}
        for name, relation, value in self.labels:
            if relation == "in" and name not in own:
                return False
            if relation == "=" and own.get(name) != value:
                return False
            if relation == "!=" and own.get(name) == value:
                return False
        return all((_field(found, name) == value) == (relation == "=") for name, relation, value in self.fields)


class Objects:
    """All objects of a cluster, and their history. No object is changed in place: what is found here can be kept.

    Attributes:
        changed: notified after each change; its lock guards everything here.
        history: what a watch can tell, oldest first.
        compacted: a watch must begin here at least.
        after: called after each change with the lock held.
    """

    def __init__(self) -> None:
        self.changed = threading.Condition(threading.RLock())
        self.revision = 1
        self.compacted = 0
        self.history: list[Change] = []
        self.after: Callable[[], None] = lambda: None
        self._all: dict[Place, dict[str, Json]] = {}
        self._settling = False

    # -- reading --------------------------------------------------------------------------------------------------

    def find(self, place: Place, selector: Selector = Selector()) -> list[Json]:
        """In the order of their names."""
        with self.changed:
            found = [
                each
                for where, objects in self._all.items()
                if place.holds(where)
                for each in objects.values()
                if selector.takes(each)
            ]
            return sorted(found, key=lambda each: each["metadata"]["name"])

    def get(self, place: Place, name: str) -> Json:
        """Raises Refused."""
        with self.changed:
            return self._named(place, name)

    # -- writing --------------------------------------------------------------------------------------------------

    def create(self, place: Place, given: Json) -> Json:
        """Raises Refused."""
        with self.changed:
            if not isinstance(given, dict):
                raise Refused(400, "BadRequest", "the body is no object")
            made = copy.deepcopy(given)
            metadata = made.setdefault("metadata", {})
            if not metadata.get("name"):
                if not metadata.get("generateName"):
                    raise Refused(422, "Invalid", f'{place.resource} "" is invalid: metadata.name: Required value')
                metadata["name"] = f"{metadata['generateName']}{uuid.uuid4().hex[:5]}"
            self._check_namespace(place, metadata["name"])
            if metadata["name"] in self._all.get(place, {}):
                raise Refused(409, "AlreadyExists", f'{place.resource} "{metadata["name"]}" already exists')
            self._check_new(place, made)
            if place.namespace:
                metadata["namespace"] = place.namespace
            metadata |= {"uid": str(uuid.uuid4()), "creationTimestamp": now(), "generation": 1}
            for key in ("deletionTimestamp", "deletionGracePeriodSeconds"):
                metadata.pop(key, None)
            made.setdefault("kind", KINDS.get(place.plural, place.plural))
            made.setdefault("apiVersion", place.group)
            made.pop("status", None)
            if place.plural == "pods":
                made["spec"] = {"terminationGracePeriodSeconds": 30, "restartPolicy": "Always"} | made["spec"]
                made["status"] = {"phase": "Pending"}
            if place.plural == "namespaces":
                made["status"] = {"phase": "Active"}
            self._put(place, "ADDED", None, made)
            self._settle()
            return made

    def patch(self, place: Place, name: str, patch: Json, part: str = "") -> Json:
        """A merge patch of an object, or of its status. Raises Refused."""
        with self.changed:
            before = self._named(place, name)
            return self.replace(place, name, merged(before, patch), part)

    def replace(self, place: Place, name: str, wanted: Json, part: str = "") -> Json:
        """An object as it is to be; its status only where `part` says so. Raises Refused."""
        with self.changed:
            before = self._named(place, name)
            asked = wanted.get("metadata", {})
            if (
                asked.get("resourceVersion", before["metadata"]["resourceVersion"])
                != before["metadata"]["resourceVersion"]
            ):
                raise Refused(
                    409,
                    "Conflict",
                    f'Operation cannot be fulfilled on {place.resource} "{name}": the object has been modified; please '
                    "apply your changes to the latest version and try again",
                )
            if asked.get("uid", before["metadata"]["uid"]) != before["metadata"]["uid"]:
                raise Refused(409, "Conflict", f"Precondition failed: UID in precondition: {asked['uid']}")
            if part == "status":
                after = before | {"metadata": dict(before["metadata"]), "status": wanted.get("status", {})}
            else:
                after = copy.deepcopy(wanted)
                after.pop("status", None)
                if "status" in before:
                    after["status"] = before["status"]
                kept = ("uid", "name", "namespace", "creationTimestamp", "deletionTimestamp", "generation")
                after["metadata"] |= {key: before["metadata"][key] for key in kept if key in before["metadata"]}
                if after.get("spec") != before.get("spec"):
                    ungated = {key: value for key, value in before["spec"].items() if key != "schedulingGates"}
                    if place.plural == "pods" and after["spec"] != ungated:
                        words = "spec: Forbidden: pod updates may not change fields other than its gates"
                        raise Refused(422, "Invalid", f'Pod "{name}" is invalid: {words}')
                    after["metadata"]["generation"] = before["metadata"]["generation"] + 1
            if after == before:
                return before  # what changes nothing makes no new version
            released = before["metadata"].get("finalizers") and not after["metadata"].get("finalizers")
            if released and after["metadata"].get("deletionTimestamp"):
                self._remove(place, before)
                self._settle()
                return after
            after["metadata"] = dict(after["metadata"])
            self._put(place, "MODIFIED", before, after)
            self._settle()
            return after

    def delete(self, place: Place, name: str, options: Json) -> Json:
        """As its options say, which are those of the API. Raises Refused."""
        with self.changed:
            before = self._named(place, name)
            uid = (options.get("preconditions") or {}).get("uid")
            if uid and uid != before["metadata"]["uid"]:
                raise Refused(409, "Conflict", f"Precondition failed: UID in precondition: {uid}")
            policy = options.get("propagationPolicy") or ("Orphan" if place.plural == "jobs" else "Background")
            if policy == "Orphan":
                for where, each in self._owned(before["metadata"]["uid"]):
                    rest = [
                        one for one in each["metadata"]["ownerReferences"] if one["uid"] != before["metadata"]["uid"]
                    ]
                    after = copy.deepcopy(each)
                    after["metadata"]["ownerReferences"] = rest
                    self._put(where, "MODIFIED", each, after)
            grace = self._grace(place, before, options)
            finalizers = list(before["metadata"].get("finalizers") or ())
            if policy == "Foreground" and FOREGROUND not in finalizers:
                finalizers.append(FOREGROUND)
            if grace or finalizers:
                gone_at = before["metadata"].get("deletionTimestamp") or now(grace)
                after = copy.deepcopy(before)
                after["metadata"] |= {"deletionTimestamp": gone_at, "deletionGracePeriodSeconds": grace}
                if finalizers:
                    after["metadata"]["finalizers"] = finalizers
                if after != before:
                    self._put(place, "MODIFIED", before, after)
                if policy == "Foreground":
                    for where, each in self._owned(before["metadata"]["uid"]):
                        self.delete(where, each["metadata"]["name"], {"propagationPolicy": "Background"})
            elif place.plural == "namespaces":
                self._end_namespace(place, before)
            else:
                self._remove(place, before)
            self._settle()
            return self._all.get(place, {}).get(name, before)

    def bind(self, place: Place, name: str, machine: str) -> None:
        """The pod has that machine from now on."""
        with self.changed:
            before = self._named(place, name)
            after = {**before, "metadata": dict(before["metadata"]), "spec": {**before["spec"], "nodeName": machine}}
            self._put(place, "MODIFIED", before, after)

    def copied(self) -> "Objects":
        """As everything is now, without the history."""
        with self.changed:
            made = Objects()
            made.revision, made._all = self.revision, {place: dict(each) for place, each in self._all.items()}
            return made

    def compact(self) -> None:
        """Changes up to now are told to no watch that begins from now on."""
        with self.changed:
            self.compacted = self.revision

    # -- rights ---------------------------------------------------------------------------------------------------

    def allows(self, user: str, verb: str, place: Place, part: str = "", name: str = "") -> bool:
        """Whether the roles in the namespace say so; `user`: as the API names it."""
        if user == ADMIN:
            return True
        group = place.group.rpartition("/")[0]
        resource = f"{place.plural}/{part}" if part else place.plural
        for binding in self.find(Place(RBAC, place.namespace or "-", "rolebindings")):
            names = {
                f"system:serviceaccount:{each.get('namespace') or place.namespace}:{each['name']}"
                for each in binding.get("subjects") or ()
            }
            if user not in names:
                continue
            for role in self.find(Place(RBAC, place.namespace, "roles")):
                if role["metadata"]["name"] != binding["roleRef"]["name"]:
                    continue
                for rule in role.get("rules") or ():
                    if (
                        {group, "*"} & set(rule.get("apiGroups") or ())
                        and {resource, "*"} & set(rule.get("resources") or ())
                        and {verb, "*"} & set(rule.get("verbs") or ())
                        and (not rule.get("resourceNames") or name in rule["resourceNames"])
                    ):
                        return True
        return False

    # -- inside ---------------------------------------------------------------------------------------------------

    def _named(self, place: Place, name: str) -> Json:
        try:
            return self._all[place][name]
        except KeyError:
            raise Refused(404, "NotFound", f'{place.resource} "{name}" not found') from None

    def _check_namespace(self, place: Place, name: str) -> None:
        if not place.namespace:
            return
        namespaces = self._all.get(Place("v1", "", "namespaces"), {})
        if place.namespace not in namespaces:
            raise Refused(404, "NotFound", f'namespaces "{place.namespace}" not found')
        if namespaces[place.namespace]["metadata"].get("deletionTimestamp"):
            words = f"unable to create new content in namespace {place.namespace} because it is being terminated"
            raise Refused(403, "Forbidden", f'{place.resource} "{name}" is forbidden: {words}')

    def _check_new(self, place: Place, made: Json) -> None:
        name = made["metadata"]["name"]
        if place.plural != "pods":
            return
        if not made.get("spec", {}).get("containers"):
            raise Refused(422, "Invalid", f'Pod "{name}" is invalid: spec.containers: Required value')
        live = [each for each in self.find(place) if each["status"].get("phase") not in ("Succeeded", "Failed")]
        for quota in self.find(Place("v1", place.namespace, "resourcequotas")):
            most = int(quota.get("spec", {}).get("hard", {}).get("pods", len(live) + 1))
            if len(live) >= most:
                which = quota["metadata"]["name"]
                raise Refused(
                    403,
                    "Forbidden",
                    f'pods "{name}" is forbidden: exceeded quota: {which}, requested: pods=1, used: pods={len(live)}, '
                    f"limited: pods={most}",
                )

    def _grace(self, place: Place, found: Json, options: Json) -> int:
        if place.plural != "pods":
            return 0
        if not found["spec"].get("nodeName") or found["status"].get("phase") in ("Succeeded", "Failed"):
            return 0
        asked = options.get("gracePeriodSeconds")
        grace = int(found["spec"]["terminationGracePeriodSeconds"] if asked is None else asked)
        before = found["metadata"].get("deletionGracePeriodSeconds")
        return grace if before is None else min(grace, int(before))

    def _put(self, place: Place, kind: str, before: Json, after: Json) -> None:
        self.revision += 1
        after["metadata"]["resourceVersion"] = str(self.revision)
        self._all.setdefault(place, {})[after["metadata"]["name"]] = after
        self.history.append(Change(self.revision, kind, place, before, after))
        self.changed.notify_all()

    def _remove(self, place: Place, before: Json) -> None:
        del self._all[place][before["metadata"]["name"]]
        self.revision += 1
        last = copy.deepcopy(before)
        last["metadata"]["resourceVersion"] = str(self.revision)
        self.history.append(Change(self.revision, "DELETED", place, before, last))
        self.changed.notify_all()

    def _owned(self, uid: str) -> list[tuple[Place, Json]]:
        return [
            (place, each)
            for place, objects in self._all.items()
            for each in objects.values()
            if any(one["uid"] == uid for one in each["metadata"].get("ownerReferences") or ())
        ]

    def _end_namespace(self, place: Place, before: Json) -> None:
        name = before["metadata"]["name"]
        after = copy.deepcopy(before)
        after["metadata"]["deletionTimestamp"] = now()
        after["status"] = {"phase": "Terminating"}
        self._put(place, "MODIFIED", before, after)
        for where in [each for each in self._all if each.namespace == name]:
            for each in list(self._all[where]):
                self.delete(where, each, {"propagationPolicy": "Background"})

    def _settle(self) -> None:
        """What controllers of a cluster do after a change, until nothing is left to be done."""
        if self._settling:
            return
        self._settling = True
        try:
            version = -1
            while version != self.revision:
                version = self.revision
                self._collect()
                self.after()
        finally:
            self._settling = False

    def _collect(self) -> None:
        """Removes what has lost all its owners, owners that waited for that, and namespaces that are empty."""
        here = {each["metadata"]["uid"] for objects in self._all.values() for each in objects.values()}
        owned = [
            (place, each)
            for place, objects in self._all.items()
            for each in objects.values()
            if each["metadata"].get("ownerReferences")
        ]
        for place, each in owned:
            lost = not any(one["uid"] in here for one in each["metadata"]["ownerReferences"])
            if lost and not each["metadata"].get("deletionTimestamp"):
                self.delete(place, each["metadata"]["name"], {"propagationPolicy": "Background"})
        for place, objects in list(self._all.items()):
            for each in list(objects.values()):
                metadata = each["metadata"]
                if metadata.get("finalizers") == [FOREGROUND] and not self._owned(metadata["uid"]):
                    self._remove(place, each)
        namespaces = self._all.get(Place("v1", "", "namespaces"), {})
        for name, each in list(namespaces.items()):
            left = any(place.namespace == name and objects for place, objects in self._all.items())
            if each["metadata"].get("deletionTimestamp") and not left:
                self._remove(Place("v1", "", "namespaces"), each)


class Machines:
    """Runs no pod, and says that pods run: as many as have a place, those with the highest priority first.

    Args:
        objects: of the cluster.
        places: for pods; None: pods stay pending, and nobody says why.
        classes: values of priority classes, by name.
    """

    def __init__(self, objects: Objects, places: int | None, classes: Mapping[str, int]) -> None:
        self._objects = objects
        self._classes = classes
        self.places = places
        objects.after = self.step

    def step(self) -> None:
        """Gives places, and lets go of what was told to end: its process ends at once."""
        if self.places is None:
            return
        everywhere = Place("v1", "", "pods")
        for pod in self._objects.find(everywhere):
            if pod["metadata"].get("deletionTimestamp") and not pod["metadata"].get("finalizers"):
                self._objects.delete(self._place(pod), pod["metadata"]["name"], {"gracePeriodSeconds": 0})
        pods = self._objects.find(everywhere)
        free = self.places - sum(each["status"].get("phase") == "Running" for each in pods)
        waiting = [each for each in pods if each["status"]["phase"] == "Pending" and not each["spec"].get("nodeName")]
        waiting.sort(key=lambda each: (-self._priority(each), int(each["metadata"]["resourceVersion"])))
        for pod in waiting:
            if free > 0:
                free -= 1
                self.run(pod)
            elif not pod["status"].get("conditions"):
                words = f"0/1 nodes are available: 1 Insufficient cpu ({self.places} places)."
                condition = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": words}
                self.say(pod, {"phase": "Pending", "conditions": [condition]})

    def run(self, pod: Json) -> None:
        """It has a place, and runs."""
        place, name = self._place(pod), pod["metadata"]["name"]
        self._objects.bind(place, name, "double")
        condition = {"type": "PodScheduled", "status": "True"}
        container = {"name": pod["spec"]["containers"][0]["name"], "state": {"running": {"startedAt": now()}}}
        self.say(pod, {"phase": "Running", "conditions": [condition], "containerStatuses": [container]})

    def say(self, pod: Json, status: Json) -> None:
        """Its status is that."""
        self._objects.patch(self._place(pod), pod["metadata"]["name"], {"status": status}, "status")

    def _place(self, pod: Json) -> Place:
        return Place("v1", pod["metadata"]["namespace"], "pods")

    def _priority(self, pod: Json) -> int:
        return self._classes.get(pod["spec"].get("priorityClassName", ""), 0)


def merged(value: Json, patch: Json) -> Json:
    """RFC 7386."""
    if not isinstance(patch, dict):
        return copy.deepcopy(patch)
    made = dict(value) if isinstance(value, dict) else {}
    for key, each in patch.items():
        if each is None:
            made.pop(key, None)
        else:
            made[key] = merged(made.get(key), each)
    return made


def now(later: float = 0.0) -> str:
    """As the API writes time."""
    at = datetime.datetime.now(datetime.UTC) + datetime.timedelta(seconds=later)
    return at.strftime("%Y-%m-%dT%H:%M:%SZ")


def token_of(namespace: str, account: str) -> str:
    """A token that says whose it is, and until when it would be good on a real server."""
    claims = {"sub": f"system:serviceaccount:{namespace}:{account}", "exp": int(time.time()) + 3600}
    return "double." + base64.urlsafe_b64encode(json.dumps(claims).encode()).decode()


def _terms(text: str) -> Iterator[tuple[str, str, str]]:
    for term in filter(None, text.split(",")):
        if "!=" in term:
            name, _, value = term.partition("!=")
            yield name, "!=", value
        elif "=" in term:
            name, _, value = term.partition("=")
            yield name, "=", value.removeprefix("=")
        else:
            yield term, "in", ""


def _field(found: Json, path: str) -> str:
    for word in path.split("."):
        found = (found or {}).get(word)
    return str(found or "")
