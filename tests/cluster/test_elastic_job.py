"""The custom resource, as a user of kubectl sees it: the operator runs in a pod of its own, with its own Role."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
import yaml
from kubernetes import client

from elastic_run.master.nodes.kubernetes import elastic_job

from .jobs import DEPLOY, ElasticJobs
from .process_kubelet import EMPTY

pytestmark = pytest.mark.xdist_group("kubernetes")


@pytest.fixture
def jobs(elastic_jobs: ElasticJobs) -> ElasticJobs:
    return elastic_jobs


def test_kubectl_applies_scales_suspends_and_deletes_a_job(jobs: ElasticJobs) -> None:
    jobs.apply("digits", jobs.spec(minReplicas=1, maxReplicas=3))
    own = jobs.spec(minReplicas=1, storeReplicas=1, ttlSecondsAfterFinished=3600)
    jobs.apply("short", {field: value for field, value in own.items() if field != "rdzvEndpoint"})
    found = jobs.trains("digits", 3)
    assert found["spec"]["replicas"] == 3
    true = {each["type"]: each for each in found["status"]["conditions"] if each["status"] == "True"}
    assert sorted(true) == ["Running", "SpecApplied", "StoreAvailable"] and true["Running"]["lastTransitionTime"]
    assert "digits" in jobs.kubectl("get", "ej") and "Running" in jobs.kubectl("get", "ej")
    jobs.kubectl("scale", "elasticjob/digits", "--replicas=2")
    jobs.trains("digits", 2)
    jobs.run("scale", "digits", "3")
    assert jobs.trains("digits", 3)["spec"]["replicas"] == 3
    jobs.kubectl("patch", "elasticjob", "digits", "--type=merge", "-p", '{"spec": {"suspend": true}}')
    jobs.kubectl("wait", "--for=condition=Suspended", "elasticjob/digits", "--timeout=150s")
    jobs.wait(lambda: not jobs.running(job="digits"), lambda: "no node")
    jobs.run("resume", "digits")
    assert jobs.trains("digits", 3)["spec"]["suspend"] is False
    jobs.release()
    jobs.kubectl("wait", "--for=condition=Succeeded", "elasticjob/digits", "--timeout=150s")
    assert jobs.said("digits")["exitCode"] == 0
    # Another time after its end than the one that it was made with: it goes with all that is its own.
    jobs.kubectl("wait", "--for=condition=Succeeded", "elasticjob/short", "--timeout=150s")
    assert secrets(jobs, "short") and jobs.said("short")["exitCode"] == 0
    patch = ("patch", "elasticjob", "short", "--type=merge", "-p")
    soon = jobs.kubectl(*patch, '{"spec": {"ttlSecondsAfterFinished": 5}}', fails=True)
    assert "should be greater than or equal to 60" in soon, "elastic-job wait could not read how it has ended"
    ago = (datetime.now(UTC) - timedelta(minutes=10)).strftime("%Y-%m-%dT%H:%M:%SZ")
    ended = [{**each, "lastTransitionTime": ago} for each in jobs.said("short")["conditions"]]
    where = (elastic_job.GROUP, elastic_job.VERSION, jobs.namespace, elastic_job.PLURAL, "short")
    client.CustomObjectsApi(jobs.plane.api).patch_namespaced_custom_object_status(
        *where, {"status": {"conditions": ended}}
    )
    jobs.kubectl(*patch, '{"spec": {"ttlSecondsAfterFinished": 60}}')
    kinds = "elasticjobs,jobs,configmaps,secrets,statefulsets,services,poddisruptionbudgets,pods"
    jobs.wait(lambda: "short" not in jobs.kubectl("get", kinds), lambda: jobs.kubectl("get", kinds))
    jobs.tells("digits", "Succeeded")
    jobs.kubectl("delete", "elasticjob", "digits")
    jobs.wait(lambda: not jobs.pods(job="digits") and not jobs.pods("master", "digits"), lambda: "the pods to be gone")
    assert "NotFound" in jobs.kubectl("get", "job", "digits", fails=True)


def test_roles_variables_and_a_template_reach_the_pods(jobs: ElasticJobs) -> None:
    roles = [{"name": "chief"}, {"name": "worker", "minReplicas": 1, "maxReplicas": 2}]
    template = {"spec": {"containers": [{"name": "agent", "env": [{"name": "FIRST", "value": "kept"}]}]}}
    jobs.apply("parts", jobs.spec(roles=roles, env=[{"name": "SECOND", "value": "given"}], template=template))
    jobs.trains("parts", 3)
    for pod in jobs.running(job="parts").values():
        env = {each["name"]: each.get("value") for each in pod["spec"]["containers"][0]["env"]}
        assert env["FIRST"] == "kept" and env["SECOND"] == "given"
    assert sorted(jobs.running(job="parts")) == ["parts-chief-0", "parts-worker-0", "parts-worker-1"]
    jobs.run("scale", "parts", "worker=1")
    jobs.trains("parts", 2)
    assert jobs.get("parts")["spec"]["roles"][1]["replicas"] == 1
    jobs.kubectl("scale", "elasticjob/parts", "--replicas=5")
    jobs.tells("parts", "each role has its own")


def test_a_spec_that_makes_no_sense_is_said_in_words(jobs: ElasticJobs) -> None:
    jobs.apply("wrong", jobs.spec(minReplicas=3, maxReplicas=2))
    jobs.wait(lambda: jobs.said("wrong").get("state") == "Invalid", lambda: str(jobs.said("wrong")))
    assert "3:2" in jobs.said("wrong")["reason"]
    assert not jobs.pods("master", "wrong")
    jobs.apply("wrong", jobs.spec(minReplicas=3, maxReplicas=3))
    jobs.trains("wrong", 3)
    with pytest.raises(AssertionError, match=r"required field .image|spec\.image: Required value"):
        jobs.apply("without", {"command": ["train.py"]})


def test_a_job_whose_master_cannot_begin_says_why_and_what_to_do(jobs: ElasticJobs) -> None:
    jobs.apply("empty", jobs.spec(image=f"{EMPTY}/train:1"))
    jobs.apply("pull", jobs.spec(image="missing/train:1"))
    jobs.apply("misspelt", jobs.spec(command=["/app/trian.py"]))
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
    jobs.wait(lambda: not jobs.pods("master", "pull"), lambda: "the master's pod to end")
    # An image without elastic-run ends the job.
    jobs.wait(lambda: jobs.said("empty").get("state") == "Failed", lambda: f"its end: {jobs.said('empty')}")
    assert "pods of its master could not run" in jobs.said("empty")["reason"], jobs.said("empty")
    assert "on its PATH" in jobs.said("empty")["reason"]
    assert 3 <= len(jobs.pods("master", "empty")) <= 4
    # So does a script that is not there: a second master would say the same.
    jobs.wait(lambda: jobs.said("misspelt").get("state") == "Failed", lambda: f"its end: {jobs.said('misspelt')}")
    assert "/app/trian.py" in jobs.said("misspelt")["reason"] and len(jobs.pods("master", "misspelt")) <= 2


def test_a_secret_goes_with_its_job_and_what_changed_while_the_operator_was_away_is_carried_out(
    jobs: ElasticJobs,
) -> None:
    jobs.apply("kept", jobs.spec(minReplicas=1, maxReplicas=3))
    uid = jobs.trains("kept", 3)["metadata"]["uid"]
    (found,) = secrets(jobs, "kept")
    assert [each["uid"] for each in found["metadata"]["ownerReferences"]] == [uid]
    jobs.kubectl("scale", "deployment/elastic-run-operator", "--replicas=0")
    jobs.wait(lambda: not jobs.plane.get(*jobs.operator)["items"], lambda: "no operator")
    before = set(jobs.running(job="kept"))
    jobs.kubectl("scale", "elasticjob/kept", "--replicas=2")
    jobs.apply("later", jobs.spec(minReplicas=1, maxReplicas=1))
    assert set(jobs.running(job="kept")) == before and not jobs.pods("master", "later")
    jobs.kubectl("scale", "deployment/elastic-run-operator", "--replicas=1")
    jobs.trains("later", 1)
    jobs.trains("kept", 2)
    # Somebody deletes the Job by mistake: the ElasticJob is still there, and the Job that follows has the same secret.
    masters = set(jobs.pods("master", "kept"))
    # It takes a while to go, and its ConfigMap is gone before it: the operator is told only of that.
    jobs.kubectl("patch", "job", "kept", "--type=merge", "--patch", '{"metadata": {"finalizers": ["test/held"]}}')
    jobs.kubectl("delete", "job", "kept", "--cascade=foreground", "--wait=false")
    jobs.wait(lambda: "earlier Job kept is being deleted" in jobs.logs(), lambda: "the ConfigMap to go")
    jobs.kubectl("patch", "job", "kept", "--type=merge", "--patch", '{"metadata": {"finalizers": null}}')
    # What its ElasticJob says is of the master that was, until the next one has begun.
    jobs.wait(lambda: set(jobs.running("master", "kept")) - masters, lambda: "another master")
    jobs.trains("kept", 2)
    (again,) = secrets(jobs, "kept")
    assert again["data"] == found["data"]
    jobs.kubectl("delete", "elasticjob", "kept")
    jobs.wait(lambda: not secrets(jobs, "kept"), lambda: "the Secret to go")


def secrets(jobs: ElasticJobs, job: str) -> Any:
    """Of that job."""
    return jobs.find("secrets", query=f"?labelSelector=elastic-run.dev/job%3D{job}")["items"]


def test_the_example_and_each_manifest_are_taken(jobs: ElasticJobs) -> None:
    example = DEPLOY / "example.yaml"
    jobs.kubectl("apply", "-f", str(example))
    (name,) = [each["metadata"]["name"] for each in yaml.safe_load_all(example.read_text())]
    assert jobs.get(name)["spec"]["minReplicas"] == 2
