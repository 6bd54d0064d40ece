"""A job's objects in a cluster as `elastic-job submit` prints them."""

import json
import re
from pathlib import Path
from typing import Any

import pytest

from elastic_run.launcher.cluster.command import main
from elastic_run.master.nodes.kubernetes import objects
from elastic_run.rendezvous.identity.secret import parse_secret
from tests.doubles.pod_security import violations

DEPLOY = Path(__file__).parents[4] / "deploy" / "kubernetes"


def submit(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, str, str]:
    code = main(["submit", "--dry-run", "--image=train:1", *words])
    said = capsys.readouterr()
    return code, said.out, said.err


def test_a_dry_run_prints_what_would_be_made(capsys: pytest.CaptureFixture[str]) -> None:
    import yaml

    code, out, _ = submit(capsys, "--name=night", "--nnodes", "2:8", "--cpu=2", "--", "train.py", "--lr", "1")
    assert code == 0
    *_, config, made_job = yaml.safe_load_all(out)
    assert (made_job["kind"], made_job["metadata"]["name"]) == ("Job", "night")
    command = made_job["spec"]["template"]["spec"]["containers"][0]["command"]
    assert command[-3:] == ["train.py", "--lr", "1"] and "--nnodes=2:8" in command
    assert any("join_timeout=" in word for word in command), "a job in a cluster waits for its places"
    templates = json.loads(config["data"][objects.TEMPLATES])["templates"]
    assert list(templates) == [""]


def test_a_job_with_roles_has_a_pod_for_each(capsys: pytest.CaptureFixture[str]) -> None:
    import yaml

    code, out, _ = submit(capsys, "--roles=ps:1,worker:1:3", "--", "train.py")
    assert code == 0
    *_, config, _ = yaml.safe_load_all(out)
    assert list(json.loads(config["data"][objects.TEMPLATES])["templates"]) == ["ps", "worker"]


def kinds(text: str) -> dict[str, Any]:
    import yaml

    return {each["kind"]: each for each in yaml.safe_load_all(text)}


def test_a_job_has_a_secret_of_its_own_which_stands_in_no_other_object(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, said = submit(capsys, "--name=night", "--nnodes=2", "--", "train.py")
    assert code == 0
    found = kinds(out)
    text = found["Secret"]["stringData"]["secret"]
    assert parse_secret(text, "it").text == text and out.count(text) == 1 and text not in said
    named = {
        "name": "ELASTIC_RUN_SECRET",
        "valueFrom": {"secretKeyRef": {"name": found["Secret"]["metadata"]["name"], "key": "secret"}},
    }
    nodes = json.loads(found["ConfigMap"]["data"][objects.TEMPLATES])["templates"].values()
    for each in (found["Job"]["spec"]["template"], found["StatefulSet"]["spec"]["template"], *nodes):
        assert named in each["spec"]["containers"][0]["env"]
    assert kinds(submit(capsys, "--name=night", "--nnodes=2", "--", "t.py")[1])["Secret"]["stringData"] != {
        "secret": text
    }, "each submission has another"


def test_an_insecure_job_has_no_secret(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = submit(capsys, "--nnodes=2", "--insecure", "--", "train.py")
    found = kinds(out)
    assert code == 0 and "Secret" not in found and "ELASTIC_RUN_SECRET" not in out
    assert "--insecure" in found["StatefulSet"]["spec"]["template"]["spec"]["containers"][0]["command"]
    assert "--insecure" in found["Job"]["spec"]["template"]["spec"]["containers"][0]["command"]


def test_what_a_user_applies_has_no_owner_and_takes_nothing_back(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = submit(capsys, "--name=night", "-o", "yaml", "--nnodes=2", "--", "train.py")
    found = kinds(out)
    assert code == 0 and set(found) == {
        "Secret", "Service", "PodDisruptionBudget", "StatefulSet", "ConfigMap", "Job"
    }  # fmt: skip
    assert "ownerReferences" not in out and "uid" not in out
    assert set(found["ConfigMap"]["data"]) == {objects.TEMPLATES}, "neither what is wanted nor how the job is"


def test_a_template_that_cannot_be_read_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, said = submit(capsys, "--nnodes=2", "--pod-template=none.yaml", "--", "t.py")
    assert code == 2 and not out and "cannot be read" in said


def test_without_a_cluster_it_says_so(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KUBECONFIG", "/nowhere/config")
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    assert main(["list"]) == 2
    assert "no Kubernetes cluster is configured" in capsys.readouterr().err


def test_the_operator_conforms_to_restricted_and_the_images_user_is_a_number() -> None:
    import yaml

    *_, deployment = yaml.safe_load_all((DEPLOY / "operator.yaml").read_text(encoding="utf-8"))
    assert deployment["kind"] == "Deployment" and violations(deployment["spec"]["template"]) == set()
    *_, user = re.findall(r"^USER (.*)$", (DEPLOY / "Dockerfile").read_text(encoding="utf-8"), re.MULTILINE)
    assert re.fullmatch(r"[1-9][0-9]*(:[0-9]+)?", user), "a name tells the cluster nothing"


def test_a_dry_run_prints_what_holds_for_every_pod(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    file = tmp_path / "pod.yaml"
    file.write_text("spec: {tolerations: [{key: team}], containers: [{name: agent, securityContext: {runAsUser: 7}}]}")
    code, out, _ = submit(capsys, "--nnodes=2", f"--pod-template={file}", "--", "t.py")
    found = kinds(out)
    nodes = json.loads(found["ConfigMap"]["data"][objects.TEMPLATES])["templates"].values()
    assert code == 0
    for each in (found["Job"]["spec"]["template"], found["StatefulSet"]["spec"]["template"], *nodes):
        assert each["spec"]["tolerations"][0] == {"key": "team"} and violations(each) == set()
        assert each["spec"]["containers"][0]["securityContext"]["runAsUser"] == 7
