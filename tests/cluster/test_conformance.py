"""What elastic-run relies on in an API server, asked of each that is there.

Of the double and of the control plane of these tests; or, where ELASTIC_RUN_TEST_KUBECONFIG names one, of a cluster
of yours (`make test-cluster KUBECONFIG=...`): it makes namespaces `elastic-run-test-...` there and deletes them.
Without the right to make namespaces it uses the one of the kubeconfig's context, which must be empty. What its user
may not do there is skipped, with the server's words. Its pods never run: they ask for a machine that nobody has, or
are bound to one that is not there.
"""

import copy
import itertools
import json
import os
import queue
import re
import secrets
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
import yaml
from kubernetes import client, config

from elastic_run.master.nodes.kubernetes import api, objects, pods
from elastic_run.master.nodes.kubernetes.api import Api, ApiRefused, Event, Gone
from elastic_run.master.nodes.platform import PlatformError
from elastic_run.master.nodes.replica import CannotStart, Exited, Launch, OutOfMemory, Starting, Unschedulable

from ..doubles.api_double import ApiDouble
from .control_plane import RESTRICTED, ControlPlane

pytestmark = pytest.mark.xdist_group("kubernetes")

KUBECONFIG_VARIABLE = "ELASTIC_RUN_TEST_KUBECONFIG"

SECONDS = 120.0

ROLE = Path(__file__).parents[2] / "deploy" / "kubernetes" / "role.yaml"

BATCH = "batch/v1"

NAMESPACES = "/api/v1/namespaces"

REQUEST = objects.Request("night", "night-1", "any", ("--nnodes=2",), ("train.py",), cpu="1", memory="1Gi")

NOWHERE = {"elastic-run.dev/test": "nowhere"}


FORBIDDEN = 403

OWN_OF_CLUSTER = ("kube-root-ca.crt", "openshift-service-ca.crt", "default")
"""Names of objects that a cluster (of OpenShift, too) puts into each namespace itself."""


class Server:
    """A namespace of an API server: one of its own, or that of a user who may make none."""

    def __init__(self, kubeconfig: str) -> None:
        self.kubeconfig = kubeconfig
        self.api = Api.load("", kubeconfig)
        self.made: list[str] = []
        name = f"elastic-run-test-{secrets.token_hex(4)}"
        try:
            self.api.ask_now("post", NAMESPACES, {"metadata": {"name": name, "labels": RESTRICTED}})
        except ApiRefused as error:
            if error.status != FORBIDDEN:
                raise
            self.own = False
            self._refuse_used()
        else:
            self.own, self.api.namespace = True, name
        self.until(self._takes_pods, "a namespace that takes pods")

    @property
    def namespace(self) -> str:
        return self.api.namespace

    def needs_own(self) -> None:
        if not self.own:
            pytest.skip(f"the user may make no namespaces, and {self.namespace} is to stay")

    def close(self) -> None:
        now = {"gracePeriodSeconds": 0}
        for path in [f"{NAMESPACES}/{self.namespace}"] if self.own else reversed(self.made):
            try:
                self.api.ask_now("delete", path, None if self.own else now, (("propagationPolicy", "Background"),))
            except ApiRefused as error:
                assert error.status in (404, 409), error
        if not self.own:
            for path in self.made:
                self.until(lambda path=path: self.is_gone(path), f"{path} to go")
            self.until(lambda: not self.names("pods"), "pods of Jobs to go")
        self.api.close()

    def _refuse_used(self) -> None:
        """Nothing of the user's is touched."""
        for plural, group in (("pods", ""), ("configmaps", ""), ("jobs", BATCH)):
            found = self.api.ask_now("get", self.path(plural, group=group))["items"]
            names = [each["metadata"]["name"] for each in found if each["metadata"]["name"] not in OWN_OF_CLUSTER]
            assert not names, (
                f"the user of this kubeconfig may make no namespaces, so its own must be empty, and {self.namespace} "
                f"has {plural}: {', '.join(names[:5])}. Name an empty one in the kubeconfig's context"
            )

    def path(self, plural: str, name: str = "", part: str = "", group: str = "") -> str:
        return self.api.path(plural, name, part, group)

    def create(self, plural: str, given: Any, group: str = "") -> Any:
        version = {"apiVersion": group or "v1", "kind": KINDS[plural]}
        path = self.path(plural, group=group)
        made = self.may(lambda: self.api.ask_now("post", path, {**version, **given}))
        self.made.append(f"{path}/{made['metadata']['name']}")
        return made

    def may(self, request: Callable[[], Any]) -> Any:
        """What it does; skips the test where only an administrator may ask for it."""
        try:
            return request()
        except ApiRefused as error:
            if self.own or error.status != FORBIDDEN or not re.search("cannot .* resource|to grant", str(error)):
                raise
            pytest.skip(f"the user of this kubeconfig may not do it: {error}")

    def get(self, plural: str, name: str, group: str = "") -> Any:
        return self.api.ask_now("get", self.path(plural, name, group=group))

    def patch(self, plural: str, name: str, patch: Any, part: str = "", group: str = "") -> Any:
        return self.may(lambda: self.api.ask_now("patch", self.path(plural, name, part, group), patch))

    def job(self, **more: Any) -> Any:
        """A Job whose pod no machine runs."""
        made: Any = copy.deepcopy(dict(objects.master_job(REQUEST)))
        made["spec"]["template"]["spec"]["nodeSelector"] = NOWHERE
        return self.create("jobs", made | more, BATCH)

    def delete(self, plural: str, name: str, body: Any = None, policy: str = "", group: str = "") -> Any:
        query = (("propagationPolicy", policy),) if policy else ()
        return self.api.ask_now("delete", self.path(plural, name, group=group), body, query)

    def listing(self, plural: str, **query: object) -> Any:
        return self.api.ask_now("get", self.path(plural), query=tuple(query.items()))

    def names(self, plural: str, **query: object) -> list[str]:
        return [each["metadata"]["name"] for each in self.listing(plural, **query)["items"]]

    def refuses(self, status: int, request: Callable[[], object]) -> ApiRefused:
        with pytest.raises(ApiRefused) as refused:
            request()
        assert refused.value.status == status, refused.value
        return refused.value

    def until(self, happened: Callable[[], object], what: str) -> None:
        end = time.monotonic() + SECONDS
        while not happened():
            assert time.monotonic() < end, f"{what}: not within {SECONDS:g} s"
            time.sleep(0.1)

    def gone(self, plural: str, name: str, group: str = "") -> bool:
        return self.is_gone(self.path(plural, name, group=group))

    def is_gone(self, path: str) -> bool:
        try:
            self.api.ask_now("get", path)
        except ApiRefused as error:
            assert error.status == 404
            return True
        return False

    def watch(self, plural: str, version: str, **query: object) -> "Watch":
        return Watch(self.api, self.path(plural), version, tuple(query.items()))

    def pod(self, name: str, machine: str = "", labels: Any = None, owner: Any = None) -> Any:
        """One that no machine runs; `machine`: it is bound to that."""
        spec: Any = {"containers": [{"name": "agent", "image": "any"}], "terminationGracePeriodSeconds": 30}
        spec = objects.restricted(spec)
        spec |= {"nodeName": machine} if machine else {"nodeSelector": NOWHERE}
        metadata = {"name": name, "labels": labels or {}, "ownerReferences": [owner] if owner else []}
        return self.create("pods", {"metadata": metadata, "spec": spec})

    def _takes_pods(self) -> bool:
        """A namespace that is new has no service account yet, which each pod has."""
        try:
            self.pod("first")
        except PlatformError:
            return False
        self.delete("pods", "first")
        return True

    def as_master(self) -> Api:
        """As a pod with the service account of role.yaml."""
        for each in yaml.safe_load_all(ROLE.read_text()):
            group = "" if each["apiVersion"] == "v1" else each["apiVersion"]
            plural = f"{each['kind'].lower()}s"
            if self.own or self.gone(plural, each["metadata"]["name"], group):
                self.create(plural, each, group)
        self.until(lambda: not self.gone("serviceaccounts", objects.SERVICE_ACCOUNT), "the service account")
        asked = {"spec": {"audiences": None}, "apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest"}
        path = self.path("serviceaccounts", objects.SERVICE_ACCOUNT, "token")
        try:
            return self.as_who(self.api.ask_now("post", path, asked)["status"]["token"])
        except ApiRefused as error:
            if self.own or error.status != FORBIDDEN:
                raise
        # Who may not make tokens may still act as the service accounts of a namespace.
        who = f"system:serviceaccount:{self.namespace}:{objects.SERVICE_ACCOUNT}"
        return Api(client.ApiClient(self._settings(), "Impersonate-User", who), self.namespace)

    def _settings(self) -> client.Configuration:
        settings = client.Configuration()
        config.load_kube_config(self.kubeconfig, client_configuration=settings)
        settings.retries = False
        return settings

    def as_who(self, token: str) -> Api:
        settings = self._settings()
        # Under the name that the package has for it, which depends on its version.
        settings.api_key = dict.fromkeys(("authorization", "BearerToken"), f"Bearer {token}")
        settings.cert_file = settings.key_file = None
        settings.refresh_api_key_hook = None
        return Api(client.ApiClient(settings), self.namespace)


class Watch:
    """What a watch tells, as it comes."""

    def __init__(self, api: Api, path: str, version: str, query: Sequence[tuple[str, object]]) -> None:
        self._found: queue.Queue[Event | PlatformError | None] = queue.Queue()
        self.end = api.watch(path, query, version, self._found.put)

    def next(self) -> Event | PlatformError | None:
        return self._found.get(timeout=SECONDS)

    def changes(self, count: int) -> list[tuple[str, str]]:
        """The next changes, each with its object's name."""
        found: list[tuple[str, str]] = []
        while len(found) < count:
            event = self.next()
            assert isinstance(event, Event), event
            if event.kind != "BOOKMARK":
                found.append((event.kind, event.object["metadata"]["name"]))
        return found


KINDS = {
    "pods": "Pod",
    "configmaps": "ConfigMap",
    "jobs": "Job",
    "serviceaccounts": "ServiceAccount",
    "roles": "Role",
    "rolebindings": "RoleBinding",
    "resourcequotas": "ResourceQuota",
}


EACH = ["yours"] if KUBECONFIG_VARIABLE in os.environ else ["double", "real", "a user of one namespace"]


@pytest.fixture(scope="module", params=EACH)
def kubeconfig(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    if request.param == "yours":
        yield os.environ[KUBECONFIG_VARIABLE]
    elif request.param == "double":
        with ApiDouble(tmp_path_factory.mktemp("double")) as double:
            yield str(double.kubeconfig)
    elif request.param == "real":
        yield str(request.getfixturevalue("plane").kubeconfig)
    else:
        plane: ControlPlane = request.getfixturevalue("plane")
        plane.make_namespace("user")
        plane.kubectl("create", "serviceaccount", "dev", "-n", "user")
        plane.kubectl("create", "rolebinding", "dev", "-n", "user", "--clusterrole=admin", "--serviceaccount=user:dev")
        asked = '{"kind": "TokenRequest", "apiVersion": "authentication.k8s.io/v1", "spec": {"audiences": null}}'
        where = "/api/v1/namespaces/user/serviceaccounts/dev/token"
        made = json.loads(plane.kubectl("create", "--raw", where, "-f", "-", data=asked))
        document = json.loads(plane.kubeconfig.read_text())
        document["users"][0]["user"] = {"token": made["status"]["token"]}
        document["contexts"][0]["context"]["namespace"] = "user"
        path = tmp_path_factory.mktemp("user") / "kubeconfig"
        path.write_text(json.dumps(document))
        yield str(path)


@pytest.fixture
def server(kubeconfig: str) -> Iterator[Server]:
    made = Server(kubeconfig)
    yield made
    made.close()


def config_map(name: str, **data: str) -> Any:
    return {"metadata": {"name": name}, "data": data}


# -- objects ----------------------------------------------------------------------------------------------------------


def test_a_name_is_given_once_and_what_was_there_first_stays(server: Server) -> None:
    first = server.pod("one")
    refused = server.refuses(409, lambda: server.pod("one"))
    assert refused.reason == "AlreadyExists" and '"one"' in str(refused)
    assert server.get("pods", "one")["metadata"]["uid"] == first["metadata"]["uid"]
    assert first["status"]["phase"] == "Pending"


def test_what_is_not_there_is_not_found(server: Server) -> None:
    for request in (
        lambda: server.get("pods", "nobody"),
        lambda: server.delete("pods", "nobody"),
        lambda: server.patch("configmaps", "nobody", {"data": {"a": "1"}}),
        lambda: server.patch("jobs", "nobody", {"spec": {"backoffLimit": 0}}, group=BATCH),
    ):
        refused = server.refuses(404, request)
        assert refused.reason == "NotFound" and '"nobody"' in str(refused)


def test_a_pod_that_makes_no_sense_is_refused_in_words(server: Server) -> None:
    made = {"metadata": {"name": "wrong"}, "spec": {"containers": []}}
    assert "spec.containers" in str(server.refuses(422, lambda: server.create("pods", made)))


def test_what_is_made_for_a_job_is_taken(server: Server) -> None:
    job = server.job()
    owner = objects.owner_of(job)
    server.create("configmaps", dict(objects.config_map(REQUEST, owner)))
    template = objects.with_command(objects.node_template(REQUEST, ""), ["true"])
    made = dict(pods.made("night", template, [owner], Launch("", 3, 1, 2, raised=2 << 30)))
    made["spec"]["nodeSelector"] = NOWHERE
    found = pods.replica_of(server.create("pods", made), 0.0)
    assert found is not None
    assert (found.name, found.index, found.attempt, found.counted) == ("night-worker-3-1", 3, 1, 2)
    assert (found.state, found.memory, found.raised) == ("pending", 2 << 30, 2 << 30)
    assert isinstance(found.pending, Starting | Unschedulable) or found.pending is not None


# -- lists and watches ------------------------------------------------------------------------------------------------


def test_a_watch_goes_on_where_a_list_ended(server: Server) -> None:
    server.create("configmaps", config_map("before"))
    version = server.listing("configmaps")["metadata"]["resourceVersion"]
    server.create("configmaps", config_map("one"))
    server.patch("configmaps", "one", {"data": {"a": "1"}})
    server.create("configmaps", config_map("two"))
    server.delete("configmaps", "one")
    watch = server.watch("configmaps", version)
    expected = [("ADDED", "one"), ("MODIFIED", "one"), ("ADDED", "two"), ("DELETED", "one")]
    # The cluster may have put its own there meanwhile (kube-root-ca.crt).
    found: list[tuple[str, str]] = []
    while len(found) < len(expected):
        found += [each for each in watch.changes(1) if each[1] in ("before", "one", "two")]
    assert found == expected
    server.create("configmaps", config_map("three"))
    while (found := watch.changes(1))[0][1] != "three":
        assert found[0][1] not in ("before", "one", "two")
    watch.end()


def test_selectors_of_labels_and_names_hold_for_lists_and_watches(server: Server) -> None:
    server.pod("mine", labels={pods.JOB: "night"})
    server.pod("other", labels={pods.JOB: "day"})
    chosen = {"labelSelector": f"{pods.JOB}=night"}
    assert server.names("pods", **chosen) == ["mine"]
    version = server.listing("pods", **chosen)["metadata"]["resourceVersion"]
    watch = server.watch("pods", version, **chosen)
    server.delete("pods", "other")
    server.patch("pods", "mine", {"metadata": {"labels": {pods.JOB: "day"}}})
    server.pod("third", labels={pods.JOB: "night"})
    seen: list[tuple[str, str]] = []
    while ("ADDED", "third") not in seen:
        seen += watch.changes(1)
    assert ("DELETED", "mine") in seen, "what is not selected any more is told as gone"
    assert not any(name == "other" for _, name in seen)
    watch.end()
    server.create("configmaps", config_map("one"))
    server.create("configmaps", config_map("two"))
    assert server.names("configmaps", fieldSelector="metadata.name=one") == ["one"]


def test_a_watch_ends_in_order_with_a_bookmark_of_what_was_elsewhere(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The master's watch of one ConfigMap sees nothing for hours, and goes on from its last bookmark."""
    monkeypatch.setattr(api, "WATCHED", 5)  # a server sends its bookmark two seconds before the watch's end
    server.create("configmaps", config_map("one"))
    version = server.listing("configmaps")["metadata"]["resourceVersion"]
    watch = server.watch("configmaps", version, fieldSelector="metadata.name=one")
    server.create("configmaps", config_map("elsewhere"))
    found: list[Any] = []
    while (event := watch.next()) is not None:
        assert isinstance(event, Event), event
        found.append(event)
    assert [each.kind for each in found] and {each.kind for each in found} == {"BOOKMARK"}
    assert int(found[-1].object["metadata"]["resourceVersion"]) > int(version)


def test_a_version_that_was_never_there_is_no_version_to_watch_from(server: Server) -> None:
    event = server.watch("pods", "no-version").next()
    assert isinstance(event, PlatformError) and not isinstance(event, Gone) and "no-version" in str(event)


# -- changes ----------------------------------------------------------------------------------------------------------


def test_a_merge_patch_changes_what_it_names(server: Server) -> None:
    server.create("configmaps", config_map("one", kept="1", changed="2", taken="3"))
    found = server.patch("configmaps", "one", {"data": {"changed": "4", "taken": None, "more": "5"}})
    assert found["data"] == {"kept": "1", "changed": "4", "more": "5"}


def test_a_patch_that_changes_nothing_makes_no_version(server: Server) -> None:
    made = server.create("configmaps", config_map("one", a="1"))
    found = server.patch("configmaps", "one", {"data": {"a": "1"}})
    assert found["metadata"]["resourceVersion"] == made["metadata"]["resourceVersion"]


def test_a_patch_of_an_older_version_is_refused_as_a_conflict(server: Server) -> None:
    made = server.create("configmaps", config_map("one", a="1"))
    old = {"metadata": {"resourceVersion": made["metadata"]["resourceVersion"]}}
    newer = server.patch("configmaps", "one", {**old, "data": {"a": "2"}})
    assert newer["metadata"]["resourceVersion"] != made["metadata"]["resourceVersion"]
    refused = server.refuses(409, lambda: server.patch("configmaps", "one", {**old, "data": {"a": "3"}}))
    assert refused.reason == "Conflict"
    assert server.get("configmaps", "one")["data"] == {"a": "2"}


def test_a_jobs_limit_of_masters_can_be_raised_and_lowered_and_its_status_cannot(server: Server) -> None:
    server.job(metadata={"name": "night"})
    found = server.patch("jobs", "night", {"spec": {"backoffLimit": objects.ATTEMPTS}}, group=BATCH)
    assert found["spec"]["backoffLimit"] == objects.ATTEMPTS
    found = server.patch("jobs", "night", {"spec": {"backoffLimit": 0}, "status": {"failed": 7}}, group=BATCH)
    assert found["spec"]["backoffLimit"] == 0 and found["spec"]["parallelism"] == 1
    assert found.get("status", {}).get("failed") != 7


def test_what_a_pod_says_of_its_containers_is_read_as_an_end(server: Server) -> None:
    def seen(name: str, status: Any) -> Any:
        template = objects.with_command(objects.node_template(REQUEST, ""), ["true"])
        owner = {"apiVersion": "v1", "kind": "ConfigMap", "name": "one", "uid": uid}
        made: Any = dict(pods.made("night", template, [owner], Launch("", next(numbers), 0)))
        made["spec"]["nodeName"] = "nowhere"
        where = server.create("pods", made)["metadata"]["name"]
        found = pods.replica_of(server.patch("pods", where, {"status": status}, "status"), 0.0)
        assert found is not None, name
        return found.pending or found.end

    def container(state: Any) -> Any:
        return [{"name": "agent", "image": "any", "imageID": "", "ready": False, "restartCount": 0, "state": state}]

    uid = server.create("configmaps", config_map("one"))["metadata"]["uid"]
    numbers = itertools.count()
    pull = {"waiting": {"reason": "ErrImagePull", "message": "no such image"}}
    found = seen("pull", {"phase": "Pending", "containerStatuses": container(pull)})
    assert found == CannotStart("ErrImagePull: no such image")
    memory = {"terminated": {"exitCode": 137, "reason": "OOMKilled"}}
    assert seen("memory", {"phase": "Failed", "containerStatuses": container(memory)}) == OutOfMemory(1 << 30)
    failed = {"terminated": {"exitCode": 3, "reason": "Error"}}
    assert seen("failed", {"phase": "Failed", "containerStatuses": container(failed)}) == Exited(3)


# -- what goes away ---------------------------------------------------------------------------------------------------


def test_a_pod_without_a_machine_goes_at_once(server: Server) -> None:
    server.pod("one")
    server.delete("pods", "one")
    assert server.gone("pods", "one")


def test_a_pod_of_a_machine_is_told_to_end_and_goes_when_that_machine_says_so(server: Server) -> None:
    made = server.pod("one", machine="nowhere")
    version = server.listing("pods")["metadata"]["resourceVersion"]
    watch = server.watch("pods", version)
    server.delete("pods", "one")
    found = server.get("pods", "one")
    assert found["metadata"]["deletionTimestamp"] and found["metadata"]["deletionGracePeriodSeconds"] == 30
    server.delete("pods", "one")  # and again, without harm
    assert server.get("pods", "one")["metadata"]["uid"] == made["metadata"]["uid"]
    refused = server.refuses(409, lambda: server.pod("one"))
    assert refused.reason == "AlreadyExists", "its name is taken until it is gone"
    other = {"preconditions": {"uid": "another"}, "gracePeriodSeconds": 0}
    server.refuses(409, lambda: server.delete("pods", "one", other))
    server.delete("pods", "one", {"gracePeriodSeconds": 0, "preconditions": {"uid": made["metadata"]["uid"]}})
    assert server.gone("pods", "one")
    kinds = [kind for kind, _ in watch.changes(2)]
    while kinds[-1] != "DELETED":
        kinds += [kind for kind, _ in watch.changes(1)]
    assert kinds[0] == "MODIFIED"
    watch.end()


def test_what_a_job_owns_goes_with_it(server: Server) -> None:
    job = server.job(metadata={"name": "night"})
    owner = objects.owner_of(job)
    server.create("configmaps", {"metadata": {"name": "owned", "ownerReferences": [owner]}})
    server.create("configmaps", config_map("free"))
    server.pod("node", owner=owner)
    server.delete("jobs", "night", policy="Background", group=BATCH)
    server.until(lambda: server.gone("configmaps", "owned") and server.gone("pods", "node"), "what it owned to go")
    assert not server.gone("configmaps", "free")


def test_what_an_object_that_is_gone_would_own_goes_as_well(server: Server) -> None:
    """A master that makes a pod while its Job is being deleted leaves none."""
    job = server.job(metadata={"name": "night"})
    server.delete("jobs", "night", policy="Background", group=BATCH)
    server.until(lambda: server.gone("jobs", "night", BATCH), "the Job to go")
    server.pod("late", owner=objects.owner_of(job))
    server.until(lambda: server.gone("pods", "late"), "the pod to go")


def test_a_namespace_that_is_being_deleted_takes_nothing_new(server: Server) -> None:
    server.needs_own()
    server.create("configmaps", {"metadata": {"name": "held", "finalizers": ["elastic-run.dev/test"]}})
    server.api.ask_now("delete", f"{NAMESPACES}/{server.namespace}")
    refused = server.refuses(403, lambda: server.pod("late"))
    assert "being terminated" in str(refused)
    server.patch("configmaps", "held", {"metadata": {"finalizers": None}})
    name = server.namespace
    server.until(lambda: server.is_gone(f"{NAMESPACES}/{name}"), "the namespace to go")


def test_a_quota_that_is_full_is_said_in_words(server: Server) -> None:
    server.create("resourcequotas", {"metadata": {"name": "few"}, "spec": {"hard": {"pods": "1"}}})

    def refused() -> bool:
        name = f"pod-{secrets.token_hex(4)}"
        try:
            server.pod(name)
        except ApiRefused as error:
            assert error.status == 403
            return "exceeded quota: few" in str(error)
        return False

    server.until(refused, "a refusal")  # its controller counts first, and takes none until it has


# -- rights -----------------------------------------------------------------------------------------------------------

ALLOWED = [
    ("pods", "", "", ("create", "delete", "list", "watch")),
    ("configmaps", "", "", ("get", "list", "watch", "patch")),
    ("jobs", BATCH, "", ("get", "patch")),
    ("statefulsets", "apps/v1", "scale", ("patch",)),
]
"""All that a master may do: role.yaml, line by line. Changes of that file belong here."""

ALL = [
    *((plural, "", "") for plural in ("pods", "configmaps", "secrets", "services", "serviceaccounts", "events")),
    *((plural, "", "") for plural in ("endpoints", "persistentvolumeclaims", "resourcequotas", "nodes")),
    *(("pods", "", part) for part in ("exec", "log", "status", "attach", "portforward", "eviction", "binding")),
    ("serviceaccounts", "", "token"),
    *((plural, BATCH, "") for plural in ("jobs", "cronjobs")),
    ("jobs", BATCH, "status"),
    ("statefulsets", "apps/v1", "scale"),
    ("deployments", "apps/v1", "scale"),
    *((plural, "apps/v1", "") for plural in ("deployments", "statefulsets", "daemonsets")),
    *((plural, "rbac.authorization.k8s.io/v1", "") for plural in ("roles", "rolebindings", "clusterroles")),
    ("leases", "coordination.k8s.io/v1", ""),
]

VERBS = ("get", "list", "watch", "create", "update", "patch", "delete", "deletecollection")


def test_the_role_says_what_the_tests_say(server: Server) -> None:
    (role,) = [each for each in yaml.safe_load_all(ROLE.read_text()) if each["kind"] == "Role"]
    found = [
        (plural.partition("/")[0], f"{group}/v1" if group else "", plural.partition("/")[2], tuple(rule["verbs"]))
        for rule in role["rules"]
        for group in rule["apiGroups"]
        for plural in rule["resources"]
    ]
    assert found == ALLOWED


def test_a_master_may_do_what_its_role_says_and_nothing_else(server: Server) -> None:
    may = {(plural, group, part, verb) for plural, group, part, verbs in ALLOWED for verb in verbs}
    master = server.as_master()
    wrong: list[str] = []
    for (plural, group, part), verb in itertools.product(ALL, VERBS):
        status = asked(master, verb, plural, group, part)
        if (status != 403) != ((plural, group, part, verb) in may):
            wrong.append(f"{verb} {plural} {part}: {status}")
    master.close()
    assert not wrong


def test_a_master_may_do_nothing_in_another_namespace(server: Server) -> None:
    master = server.as_master()
    master.namespace = "default" if server.namespace != "default" else "kube-system"
    for plural, group, part, verbs in ALLOWED:
        for verb in verbs:
            assert asked(master, verb, plural, group, part) == 403, (verb, plural)
    master.close()


def test_a_token_that_is_none_is_refused(server: Server) -> None:
    stranger = server.as_who("nobody")
    assert asked(stranger, "list", "pods", "", "") == 401
    stranger.close()


def asked(api: Api, verb: str, plural: str, group: str, part: str) -> int:
    """The status of the answer; 200 where it was done."""
    named = verb in ("get", "update", "patch", "delete") or part
    path = api.path(plural, "nobody" if named else "", part, group)
    method = {"create": "post", "update": "put", "patch": "patch", "delete": "delete", "deletecollection": "delete"}
    bodies = {"create": {}, "update": {"metadata": {"name": "nobody"}}, "patch": {"metadata": {"labels": {"a": "b"}}}}
    if part and verb in ("list", "watch", "deletecollection"):
        return 403  # there is no such request
    try:
        if verb == "watch":
            next(api.text(path, (("watch", "true"), ("timeoutSeconds", 1))), None)
        else:
            api.ask_now(method.get(verb, "get"), path, bodies.get(verb))
    except ApiRefused as error:
        return error.status
    except PlatformError as error:
        assert "403" not in str(error), error
        return 500
    return 200
