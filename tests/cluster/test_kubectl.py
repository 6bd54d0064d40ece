"""A job in the hands of somebody who knows kubectl and nothing else."""

import os
import subprocess
from pathlib import Path

import pytest

from .control_plane import ControlPlane
from .jobs import DEPLOY, ROLE, ElasticJobs

pytestmark = pytest.mark.xdist_group("kubernetes")

NODES = "elastic-run.dev/job=digits,elastic-run.dev/component=node"


def shown(file: Path) -> list[list[str]]:
    """The words of each line."""
    return [line.split() for line in file.read_text().splitlines()]


def edit(jobs: ElasticJobs, expression: str) -> None:
    """`kubectl edit`, whose editor is a `sed`."""
    environment = {**os.environ, "KUBE_EDITOR": f"sed -i -e '{expression}'"}
    words = ["kubectl", f"--kubeconfig={jobs.plane.kubeconfig}", "-n", jobs.namespace, "edit", "elasticjob", "digits"]
    done = subprocess.run(words, env=environment, capture_output=True, text=True, timeout=180)
    assert done.returncode == 0 and "edited" in done.stdout, done.stdout + done.stderr


def explained(jobs: ElasticJobs, field: str) -> str:
    """What `kubectl explain` says, which may be that it knows no such resource yet."""
    words = ["kubectl", f"--kubeconfig={jobs.plane.kubeconfig}", "explain", f"elasticjob.{field}"]
    return subprocess.run(words, capture_output=True, text=True, timeout=180).stdout


def test_kubectl_alone_is_enough(elastic_jobs: ElasticJobs, tmp_path: Path) -> None:
    jobs = elastic_jobs
    # A newer API server publishes a schema some seconds after its resource is established.
    for field, words in (("spec.roles", "The fewest nodes of the role"), ("status.reason", "Why it is so")):
        jobs.wait(lambda field=field, words=words: words in explained(jobs, field), lambda words=words: words)
    watched = tmp_path / "watched"
    with watched.open("wb") as file:
        words = ["kubectl", f"--kubeconfig={jobs.plane.kubeconfig}", "-n", jobs.namespace, "get", "elasticjobs", "-w"]
        watching = subprocess.Popen(words, stdout=file, stderr=file)
        try:
            jobs.apply("digits", jobs.spec(minReplicas=1, maxReplicas=3))
            jobs.trains("digits", 3)
            edit(jobs, "s/^  replicas: 3/  replicas: 2/")
            jobs.trains("digits", 2)
            scaled = ["digits", "Running", "2", "2"]
            jobs.wait(lambda: scaled in [line[:4] for line in shown(watched)], lambda: watched.read_text())
        finally:
            watching.kill()
            watching.wait()
    assert shown(watched)[0][:4] == ["NAME", "STATE", "NODES", "WORKERS"], watched.read_text()
    # What only looks as if it could be changed is said.
    edit(jobs, "s/image: any/image: other/")
    jobs.kubectl("wait", "--for=condition=SpecApplied=false", "elasticjob/digits", "--timeout=150s")
    jobs.tells("digits", "image changed after the job was made")
    edit(jobs, "s/image: other/image: any/")
    jobs.kubectl("wait", "--for=condition=SpecApplied=true", "elasticjob/digits", "--timeout=150s")
    # Logs: of the nodes by their label, of the master by its Job.
    assert "rank 0 of" in jobs.kubectl("logs", "-l", NODES, "--prefix", "--tail=-1")
    assert "leads the job" in jobs.kubectl("logs", "job/digits")
    jobs.kubectl("scale", "elasticjob", "digits", "--current-replicas=2", "--replicas=1")
    jobs.trains("digits", 1)
    # Its owner goes, and the job goes on; elastic-job has its verbs for what is left.
    jobs.kubectl("delete", "elasticjob", "digits", "--cascade=orphan")
    assert jobs.running(job="digits") and jobs.status("digits")["state"] == "running"
    jobs.run("scale", "digits", "2")
    jobs.until("digits", 2)
    jobs.run("delete", "digits")
    jobs.wait(lambda: not jobs.pods(job="digits") and not jobs.pods("master", "digits"), lambda: "the pods to be gone")
    assert not jobs.plane.get("secrets", "-n", jobs.namespace, "-l", "elastic-run.dev/job=digits")["items"]
    # Made anew under its name, and deleted with all that is its own.
    jobs.apply("digits", jobs.spec(minReplicas=2))
    jobs.trains("digits", 2)
    jobs.kubectl("delete", "elasticjob", "digits", "--cascade=foreground")
    jobs.wait(lambda: not jobs.pods(job="digits") and not jobs.pods("master", "digits"), lambda: "the pods to be gone")


def test_the_clusters_own_roles_cover_elastic_jobs(plane: ControlPlane, tmp_path: Path) -> None:
    jobs = ElasticJobs(plane, tmp_path)
    for role in ("view", "edit", "admin"):
        jobs.kubectl("create", "rolebinding", role, f"--clusterrole={role}", f"--user={role}")

    def may(role: str, *what: str) -> bool:
        words = ["kubectl", f"--kubeconfig={jobs.plane.kubeconfig}", "-n", jobs.namespace, f"--as={role}"]
        return subprocess.run([*words, "auth", "can-i", *what, "-q"], timeout=180).returncode == 0

    jobs.wait(lambda: may("view", "list", "elasticjobs"), lambda: "the roles to be aggregated")
    assert not may("view", "create", "elasticjobs") and not may("view", "patch", "elasticjobs", "--subresource=scale")
    jobs.wait(lambda: may("edit", "create", "elasticjobs"), lambda: "the roles to be aggregated")
    assert not may("edit", "patch", "elasticjobs", "--subresource=status"), "that is the operator's"
    jobs.kubectl("apply", "-f", str(DEPLOY / "example.yaml"), "--as=edit")
    jobs.kubectl("scale", "elasticjob/digits", "--replicas=4", "--as=edit")
    assert "digits" in jobs.kubectl("get", "elasticjobs", "--as=view")
    jobs.kubectl("delete", "elasticjob", "digits", "--as=edit")
    # An admin of the namespace prepares it: nobody can give rights that they have not.
    jobs.kubectl("delete", "-f", str(DEPLOY / "operator.yaml"), "-f", str(ROLE))
    jobs.wait(lambda: may("admin", "patch", "elasticjobs", "--subresource=status"), lambda: "the roles of an admin")
    jobs.kubectl("apply", "-f", str(ROLE), "-f", str(DEPLOY / "operator.yaml"), "--as=admin")
