"""What follows when a pod ends, on a real API server: for each reason that can be made to happen there."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from .control_plane import ControlPlane
from .jobs import Jobs
from .process_kubelet import Kubelet

pytestmark = pytest.mark.xdist_group("kubernetes")


@pytest.fixture
def jobs(plane: ControlPlane, folder: Path) -> Iterator[Jobs]:
    made = Jobs(plane, folder)
    yield made
    made.plane.kubectl("delete", "jobs", "--all", "-n", made.namespace, "--wait=false")


HUNGRY = """
import os, pathlib, resource, sys, time
limit = int(pathlib.Path(sys.argv[1]).with_name("hungry").read_text())
kept = bytearray(limit)
while not pathlib.Path(sys.argv[1]).exists():
    time.sleep(0.05)
"""
"""A script that needs as many bytes as a file says."""


def test_a_node_out_of_memory_gets_more_up_to_its_cap_and_a_lower_priority_gives_way(
    jobs: Jobs, plane: ControlPlane
) -> None:
    for name, value in (("evidence-low", 10), ("evidence-high", 1000)):
        kind = {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass"}
        plane.apply({**kind, "metadata": {"name": name}, "value": value})
    (jobs.folder / "hungry").write_text(str(800 << 20))
    with Kubelet(plane, "evidence", cpu=4):
        jobs.submit("low", "--nnodes=1:3", "--priority-class=evidence-low")
        jobs.until("low", 3)
        stayed = jobs.running("master")
        jobs.submit(
            "hungry",
            "--nnodes=1",
            "--memory=512Mi",
            "--memory-cap=2Gi",
            "--priority-class=evidence-high",
            script=HUNGRY,
        )
        found = jobs.until("low", 2)
        assert "left" in found["incidents"][-1]["reason"], found
        jobs.until("hungry", 1)
        # From 512 MiB to 768 MiB, which is too little, to 1152 MiB.
        jobs.wait(lambda: memory(jobs, "hungry") == [1152 << 20], lambda: f"more memory: {memory(jobs, 'hungry')}")
        assert set(jobs.running("master")) >= set(stayed), "both masters stay"
        jobs.release()
        jobs.run("wait", "hungry")
        jobs.run("wait", "low")


def memory(jobs: Jobs, name: str) -> list[int]:
    """Limits of the pods that run."""
    pods = [each for each in jobs.running().values() if each["metadata"]["labels"]["elastic-run.dev/job"] == name]
    limits = [each["spec"]["containers"][0]["resources"]["limits"]["memory"] for each in pods]
    return [json.loads(each) if each.isdigit() else 0 for each in limits]


def test_an_agent_that_refuses_its_flags_is_given_up_and_the_job_ends_with_the_reason(
    jobs: Jobs, plane: ControlPlane
) -> None:
    template = jobs.folder / "pod.yaml"
    env = [{"name": "PET_MAX_RESTARTS", "value": "many"}]
    template.write_text(json.dumps({"spec": {"containers": [{"name": "agent", "env": env}]}}))
    with Kubelet(plane, "evidence-flags", cpu=4):
        jobs.submit("refused", "--nnodes=1", f"--pod-template={template}")
        jobs.run("wait", "refused", code=1)
        found = jobs.status("refused")
        assert "it cannot have its nodes: refused-worker-0" in found["reason"], found
        assert "exit code 2" in found["reason"] and list(jobs.pods()) == ["refused-worker-0"], found
