"""The custom resource, as a user of kubectl sees it: the operator runs in a pod of its own, with its own Role."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from .control_plane import ControlPlane
from .jobs import HELD, Jobs
from .process_kubelet import EMPTY, Kubelet

pytestmark = pytest.mark.xdist_group("kubernetes")

DEPLOY = Path(__file__).parents[2] / "deploy" / "kubernetes"

TIMES = "--rdzv-conf=last_call_timeout=0,settle=0,scale_up_interval=0"


class ElasticJobs(Jobs):
    """Jobs that are applied, and changed, with kubectl."""

    def kubectl(self, *words: str, fails: bool = False) -> str:
        return self.plane.kubectl(*words, "-n", self.namespace, fails=fails)

    def spec(self, **more: object) -> dict[str, Any]:
        script = self.folder / "held.py"
        script.write_text(HELD)
        flags = [TIMES, "--shutdown-timeout=3"]
        spec = {"image": "any", "command": [str(script), str(self.release_file)], "cpu": "1", "flags": flags}
        return spec | {"rdzvEndpoint": f"http://{self.plane.store}"} | more

    def apply(self, name: str, spec: object) -> None:
        kind = {"apiVersion": "elastic-run.dev/v1", "kind": "ElasticJob"}
        self.plane.apply({**kind, "metadata": {"name": name, "namespace": self.namespace}, "spec": spec})

    def get(self, name: str) -> Any:
        return self.plane.get("elasticjob", name, "-n", self.namespace)

    def said(self, name: str) -> Any:
        return self.get(name).get("status", {})

    def logs(self) -> str:
        """Of the operator as well."""
        (pod, *_) = [each["metadata"]["name"] for each in self.plane.get(*self.operator)["items"]] or [""]
        return super().logs() + (f"\n---- operator ----\n{self.kubectl('logs', pod)}" if pod else "")

    @property
    def operator(self) -> tuple[str, ...]:
        """What `kubectl get` shows of its pods."""
        return ("pods", "-n", self.namespace, "-l", "app=elastic-run-operator")

    def tells(self, name: str, words: str) -> None:
        """Waits for an event that says so, which the operator writes after the status."""

        def told() -> str:
            return self.kubectl("describe", "elasticjob", name).partition("Events:")[2]

        self.wait(lambda: words in told(), lambda: f"an event with {words!r}: {told()}")

    def trains(self, name: str, workers: int) -> Any:
        self.wait(
            lambda: (self.said(name).get("state"), self.said(name).get("workers")) == ("Running", workers),
            lambda: f"{workers} workers: {self.said(name)}",
        )
        return self.get(name)


@pytest.fixture
def jobs(plane: ControlPlane, folder: Path) -> Iterator[ElasticJobs]:
    plane.kubectl("apply", "-f", str(DEPLOY / "crd.yaml"))
    plane.kubectl("wait", "--for=condition=Established", "crd/elasticjobs.elastic-run.dev", "--timeout=150s")
    made = ElasticJobs(plane, folder)
    made.kubectl("apply", "-f", str(DEPLOY / "operator.yaml"))
    yield made
    made.kubectl("delete", "elasticjobs", "--all", "--wait=false")
    made.kubectl("delete", "deployment", "elastic-run-operator", "--wait=false")


@pytest.fixture
def machine(plane: ControlPlane, request: pytest.FixtureRequest) -> Iterator[Kubelet]:
    with Kubelet(plane, f"e-{request.node.name[:40].lower().replace('_', '-').rstrip('-')}") as made:
        yield made


def test_kubectl_applies_scales_suspends_and_deletes_a_job(jobs: ElasticJobs, machine: Kubelet) -> None:
    jobs.apply("digits", jobs.spec(minReplicas=1, maxReplicas=3))
    found = jobs.trains("digits", 3)
    assert found["spec"]["replicas"] == 3
    true = {each["type"]: each for each in found["status"]["conditions"] if each["status"] == "True"}
    assert sorted(true) == ["Running", "SpecApplied"] and true["Running"]["lastTransitionTime"]
    assert "digits" in jobs.kubectl("get", "ej") and "Running" in jobs.kubectl("get", "ej")
    jobs.kubectl("scale", "elasticjob/digits", "--replicas=2")
    jobs.trains("digits", 2)
    jobs.run("scale", "digits", "3")
    assert jobs.trains("digits", 3)["spec"]["replicas"] == 3
    jobs.kubectl("patch", "elasticjob", "digits", "--type=merge", "-p", '{"spec": {"suspend": true}}')
    jobs.kubectl("wait", "--for=condition=Suspended", "elasticjob/digits", "--timeout=150s")
    jobs.wait(lambda: not jobs.running(), lambda: "no node")
    jobs.run("resume", "digits")
    assert jobs.trains("digits", 3)["spec"]["suspend"] is False
    jobs.release()
    jobs.kubectl("wait", "--for=condition=Succeeded", "elasticjob/digits", "--timeout=150s")
    assert jobs.said("digits")["exitCode"] == 0
    jobs.tells("digits", "Succeeded")
    jobs.kubectl("delete", "elasticjob", "digits")
    jobs.wait(lambda: not jobs.pods() and not jobs.pods("master"), lambda: "the pods to be gone")
    assert "NotFound" in jobs.kubectl("get", "job", "digits", fails=True)


def test_roles_variables_and_a_template_reach_the_pods(jobs: ElasticJobs, machine: Kubelet) -> None:
    roles = [{"name": "chief"}, {"name": "worker", "minReplicas": 1, "maxReplicas": 2}]
    template = {"spec": {"containers": [{"name": "agent", "env": [{"name": "FIRST", "value": "kept"}]}]}}
    jobs.apply("parts", jobs.spec(roles=roles, env=[{"name": "SECOND", "value": "given"}], template=template))
    jobs.trains("parts", 3)
    for pod in jobs.running().values():
        env = {each["name"]: each.get("value") for each in pod["spec"]["containers"][0]["env"]}
        assert env["FIRST"] == "kept" and env["SECOND"] == "given"
    assert sorted(jobs.running()) == ["parts-chief-0", "parts-worker-0", "parts-worker-1"]
    jobs.run("scale", "parts", "worker=1")
    jobs.trains("parts", 2)
    assert jobs.get("parts")["spec"]["roles"][1]["replicas"] == 1


def test_a_spec_that_makes_no_sense_is_said_in_words(jobs: ElasticJobs, machine: Kubelet) -> None:
    jobs.apply("wrong", jobs.spec(minReplicas=3, maxReplicas=2))
    jobs.wait(lambda: jobs.said("wrong").get("state") == "Invalid", lambda: str(jobs.said("wrong")))
    assert "3:2" in jobs.said("wrong")["reason"]
    assert not jobs.pods("master")
    jobs.apply("wrong", jobs.spec(minReplicas=1, maxReplicas=2))
    jobs.trains("wrong", 2)
    with pytest.raises(AssertionError, match=r"required field .image|spec\.image: Required value"):
        jobs.apply("without", {"command": ["train.py"]})


def test_a_job_whose_master_cannot_begin_says_why_and_what_to_do(jobs: ElasticJobs, machine: Kubelet) -> None:
    jobs.apply("pull", jobs.spec(image="missing/train:1"))
    jobs.apply("account", jobs.spec(serviceAccountName="nobody"))
    jobs.wait(lambda: "not found" in jobs.said("pull").get("reason", ""), lambda: f"why: {jobs.said('pull')}")
    jobs.wait(lambda: "nobody" in jobs.said("account").get("reason", ""), lambda: f"why: {jobs.said('account')}")
    assert "missing/train:1" in jobs.said("pull")["reason"] and "check the image's name" in jobs.said("pull")["reason"]
    assert "role.yaml" in jobs.said("account")["reason"], jobs.said("account")
    for name, word in (("pull", "missing/train:1"), ("account", "nobody")):
        assert jobs.said(name)["state"] == "Pending" and word in jobs.run("status", name)
        jobs.tells(name, word)
    # Neither has a master who would read that it is to end.
    jobs.run("cancel", "pull")
    jobs.kubectl("wait", "--for=condition=Failed", "elasticjob/pull", "--timeout=150s")
    assert jobs.said("pull")["reason"] == "it was cancelled by its user"
    jobs.wait(lambda: not jobs.pods("master"), lambda: "the master's pod to end")
    jobs.kubectl("delete", "elasticjob", "account")


def test_an_image_without_elastic_run_ends_the_job_with_its_reason(jobs: ElasticJobs, machine: Kubelet) -> None:
    jobs.apply("empty", jobs.spec(image=f"{EMPTY}/train:1"))
    jobs.wait(lambda: jobs.said("empty").get("state") == "Failed", lambda: f"its end: {jobs.said('empty')}")
    assert "pods of its master could not run" in jobs.said("empty")["reason"], jobs.said("empty")
    assert "on its PATH" in jobs.said("empty")["reason"]
    assert 3 <= len(jobs.pods("master")) <= 4


def test_each_elastic_job_has_a_secret_that_goes_with_it(jobs: ElasticJobs, machine: Kubelet) -> None:
    jobs.apply("kept", jobs.spec(minReplicas=2))
    uid = jobs.trains("kept", 2)["metadata"]["uid"]
    (found,) = jobs.plane.get("secrets", "-n", jobs.namespace, "-l", "elastic-run.dev/job=kept")["items"]
    assert [each["uid"] for each in found["metadata"]["ownerReferences"]] == [uid]
    # Somebody deletes the Job by mistake: the one that follows has the same.
    jobs.kubectl("delete", "job", "kept", "--cascade=foreground")
    jobs.trains("kept", 2)
    (again,) = jobs.plane.get("secrets", "-n", jobs.namespace, "-l", "elastic-run.dev/job=kept")["items"]
    assert again["data"] == found["data"]
    jobs.kubectl("delete", "elasticjob", "kept")
    jobs.wait(
        lambda: not jobs.plane.get("secrets", "-n", jobs.namespace, "-l", "elastic-run.dev/job=kept")["items"],
        lambda: "the Secret to go",
    )


def test_what_changed_while_the_operator_was_away_is_carried_out(jobs: ElasticJobs, machine: Kubelet) -> None:
    jobs.apply("kept", jobs.spec(minReplicas=1, maxReplicas=3))
    jobs.trains("kept", 3)
    jobs.kubectl("scale", "deployment/elastic-run-operator", "--replicas=0")
    jobs.wait(lambda: not jobs.plane.get(*jobs.operator)["items"], lambda: "no operator")
    before = set(jobs.running())
    jobs.kubectl("scale", "elasticjob/kept", "--replicas=2")
    jobs.apply("later", jobs.spec(minReplicas=1, maxReplicas=1))
    assert set(jobs.running()) == before
    jobs.kubectl("scale", "deployment/elastic-run-operator", "--replicas=1")
    jobs.trains("later", 1)
    jobs.trains("kept", 2)
    jobs.kubectl("delete", "job", "later", "--cascade=foreground")  # by mistake: the ElasticJob is still there
    jobs.trains("later", 1)


def test_the_example_and_each_manifest_are_taken(jobs: ElasticJobs) -> None:
    example = DEPLOY / "example.yaml"
    jobs.kubectl("apply", "-f", str(example))
    (name,) = [each["metadata"]["name"] for each in yaml.safe_load_all(example.read_text())]
    assert jobs.get(name)["spec"]["minReplicas"] == 2
