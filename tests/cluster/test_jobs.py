"""Whole jobs on a real API server, controller manager and scheduler; each pod is a process."""

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

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


@pytest.fixture
def machine(plane: ControlPlane, request: pytest.FixtureRequest) -> Iterator[Kubelet]:
    with Kubelet(plane, f"m-{request.node.name[:40].lower().replace('_', '-').rstrip('-')}") as made:
        yield made


TORCH = """
import torch, torch.distributed as dist
dist.init_process_group("gloo")
total = torch.ones(1)
dist.all_reduce(total)
print("the sum is", int(total.item()), flush=True)
dist.destroy_process_group()
"""


@pytest.mark.torch
def test_a_job_of_torch_runs_to_its_end_and_goes_with_all_that_is_its_own(jobs: Jobs, machine: Kubelet) -> None:
    script = jobs.folder / "train.py"
    script.write_text(TORCH)
    said = jobs.run("submit", "--name=torch", "--image=any", "--cpu=1", "--nnodes=2", "--", str(script))
    assert said.count("the sum is 2") == 2, said
    assert "elastic-job status" in said and "job torch succeeded" in said
    assert jobs.job("torch")["status"]["succeeded"] == 1
    assert "torch" in jobs.run("list") and "succeeded" in jobs.run("list")
    assert jobs.run("wait", "torch")
    assert "the sum is 2" in jobs.run("logs", "torch")
    jobs.run("delete", "torch")
    jobs.wait(lambda: not jobs.pods() and not jobs.pods("master"), lambda: "the pods to be gone")
    assert "NotFound" in jobs.plane.kubectl("get", "configmap", "torch", "-n", jobs.namespace, fails=True)


def test_it_scales_is_suspended_and_goes_on(jobs: Jobs, machine: Kubelet) -> None:
    jobs.submit("one", "--nnodes=1:3")
    jobs.until("one", 3)
    jobs.run("scale", "one", "2")
    jobs.until("one", 2)
    assert sorted(jobs.running()) == ["one-worker-0", "one-worker-1"]
    jobs.run("scale", "one", "3")
    jobs.until("one", 3)
    jobs.run("suspend", "one")
    jobs.wait(lambda: not jobs.running(), lambda: f"no node: {jobs.status('one')}")
    assert jobs.status("one")["state"] == "suspended"
    jobs.run("resume", "one")
    jobs.until("one", 3)
    jobs.release()
    jobs.run("wait", "one")


def test_a_higher_priority_takes_places_and_the_job_grows_back(jobs: Jobs, plane: ControlPlane) -> None:
    for name, value in (("low", 10), ("high", 1000)):
        plane.apply(
            {
                "apiVersion": "scheduling.k8s.io/v1",
                "kind": "PriorityClass",
                "metadata": {"name": name},
                "value": value,
            }
        )
    with Kubelet(plane, "small", cpu=4):
        jobs.submit("low", "--nnodes=1:3", "--priority-class=low")
        jobs.until("low", 3)
        before = set(jobs.running())
        plane.apply(
            {
                "apiVersion": "v1",
                "kind": "Pod",
                "metadata": {"name": "service", "namespace": jobs.namespace},
                "spec": {
                    "priorityClassName": "high",
                    "terminationGracePeriodSeconds": 1,
                    "containers": [
                        {
                            "name": "service",
                            "image": "any",
                            "command": ["sleep", "1000"],
                            "resources": {"requests": {"cpu": "2"}},
                        }
                    ],
                },
            }
        )
        found = jobs.until("low", 1)
        assert found["incidents"] and "left" in found["incidents"][-1]["reason"], found
        jobs.wait(
            lambda: any(
                each["code"] == "Unschedulable" and "Insufficient cpu" in each["reason"]
                for each in jobs.status("low")["waiting"]
            ),
            lambda: f"a pod that waits for a place: {jobs.status('low')['waiting']}",
        )
        stayed = set(jobs.running()) & before
        assert len(stayed) == 1
        plane.kubectl("delete", "pod", "service", "-n", jobs.namespace)
        jobs.until("low", 3)
        assert stayed <= set(jobs.running()), "who kept its place is the same pod"
        jobs.release()
        jobs.run("wait", "low")


def test_a_lost_machine_is_replaced_on_another(jobs: Jobs, plane: ControlPlane) -> None:
    with Kubelet(plane, "lost-a", cpu=3) as first:
        jobs.submit("two", "--nnodes=1:2")
        jobs.until("two", 2)
        with Kubelet(plane, "lost-b", cpu=3):
            first.lose()
            jobs.wait(
                lambda: any(each["spec"].get("nodeName") == "lost-b" for each in jobs.running("master").values()),
                lambda: "a master on the other machine",
            )
            jobs.wait(
                lambda: [each["spec"]["nodeName"] for each in jobs.running().values()] == ["lost-b"] * 2,
                lambda: "both nodes on the other machine",
            )
            jobs.until("two", 2)
            jobs.release()
            jobs.run("wait", "two")


def test_a_master_that_is_killed_comes_back_and_no_node_notices(jobs: Jobs, machine: Kubelet) -> None:
    jobs.submit("three", "--nnodes=2")
    jobs.until("three", 2)
    before = {name: each["metadata"]["uid"] for name, each in jobs.running().items()}
    (master,) = jobs.running("master")
    jobs.plane.kubectl("delete", "pod", master, "-n", jobs.namespace, "--grace-period=0", "--force")
    jobs.wait(lambda: set(jobs.running("master")) - {master}, lambda: "another master")
    machine_lost = next(iter(before))
    jobs.plane.kubectl("delete", "pod", machine_lost, "-n", jobs.namespace, "--wait=false")
    jobs.until("three", 2)
    after = {name: each["metadata"]["uid"] for name, each in jobs.running().items()}
    assert len(set(before.values()) & set(after.values())) == 1, "one was replaced, and the other is the same"
    jobs.release()
    jobs.run("wait", "three")


def test_training_goes_on_while_the_api_server_is_away(jobs: Jobs, machine: Kubelet, plane: ControlPlane) -> None:
    jobs.submit("four", "--nnodes=2")
    jobs.until("four", 2)
    pids = [machine.pid(name) for name in jobs.running()]
    plane.kill("kube-apiserver")
    jobs.release()
    machine.plane.until(lambda: not any(Path(f"/proc/{pid}").exists() for pid in pids), "the nodes to end")
    plane.start("kube-apiserver")
    jobs.run("wait", "four")
    assert jobs.status("four")["state"] == "succeeded"


def test_a_script_that_fails_ends_the_job_with_its_reason_and_no_second_master(jobs: Jobs, machine: Kubelet) -> None:
    jobs.submit("five", "--nnodes=1", "--max-restarts=0", script="raise ValueError('no such layer')")
    jobs.run("wait", "five", code=1)
    found = jobs.status("five")
    assert found["state"] == "failed" and "ValueError" in found["reason"], found
    jobs.wait(
        lambda: any(each["type"] == "Failed" for each in jobs.job("five")["status"].get("conditions", ())),
        lambda: f"the Job to have failed: {jobs.job('five')['status']}",
    )
    assert len(jobs.pods("master")) == 1


def test_a_pod_that_cannot_start_is_said_and_the_job_can_be_cancelled(jobs: Jobs, machine: Kubelet) -> None:
    template = jobs.folder / "pod.yaml"
    sidecar = {"name": "logs", "image": "missing/logs:1", "command": ["sleep", "1000"]}
    template.write_text(json.dumps({"spec": {"containers": [{"name": "agent"}, sidecar]}}))
    jobs.submit("six", "--nnodes=1:2", f"--pod-template={template}")
    waiting: list[Any] = []

    def told() -> bool:
        waiting[:] = jobs.status("six").get("waiting") or ()
        return bool(waiting)

    jobs.wait(told, lambda: "word of the image")
    assert {each["code"] for each in waiting} == {"CannotStart"}
    reason = waiting[0][
        "reason"
    ]  # a kubelet says the first when it has tried, and the second while it waits to try again
    assert ("ErrImagePull" in reason or "ImagePullBackOff" in reason) and "missing/logs:1" in reason
    assert "missing/logs:1" in jobs.run("status", "six")
    jobs.run("cancel", "six")
    jobs.run("wait", "six", code=1)
    assert jobs.status("six")["reason"] == "it was cancelled by its user"
    jobs.wait(lambda: not jobs.running(), lambda: "no node to run")


def test_neither_the_master_nor_a_member_of_the_store_is_special(jobs: Jobs, machine: Kubelet) -> None:
    jobs.submit("seven", "--nnodes=2", outside=False)
    jobs.until("seven", 2)
    before = {name: each["metadata"]["uid"] for name, each in jobs.running().items()}
    members = jobs.running("store")
    drained, lost, other = sorted(members)
    assert [drained, lost, other] == ["seven-etcd-0", "seven-etcd-1", "seven-etcd-2"]
    # A drain takes a member once all are ready, and no other before that one is back.
    jobs.wait(lambda: jobs.evicts(drained), lambda: f"{drained} to be evicted")
    assert not jobs.evicts(lost) and not jobs.evicts(other)
    jobs.wait(lambda: _answers(jobs, drained, members), lambda: f"{drained} to be back")
    jobs.plane.kubectl("delete", "pod", lost, "-n", jobs.namespace, "--grace-period=0", "--force")
    jobs.wait(lambda: _answers(jobs, lost, members), lambda: f"{lost} to be back")
    (master,) = jobs.running("master")
    jobs.plane.kubectl("delete", "pod", master, "-n", jobs.namespace, "--grace-period=0", "--force")
    jobs.wait(lambda: set(jobs.running("master")) - {master}, lambda: "another master")
    found = jobs.until("seven", 2)
    assert found["round"] == 1, "training has never stood still"
    assert {name: each["metadata"]["uid"] for name, each in jobs.running().items()} == before
    jobs.release()
    jobs.run("wait", "seven")
    jobs.wait(lambda: not jobs.running("store"), lambda: "the store to end with the job")
    jobs.run("delete", "seven")
    jobs.wait(lambda: not jobs.plane.get("statefulsets,services,pdb", "-n", jobs.namespace)["items"], lambda: "nothing")


def _answers(jobs: Jobs, member: str, before: Mapping[str, Any]) -> bool:
    """The member runs in another pod, and has joined the others."""
    pod = jobs.running("store").get(member)
    if pod is None or pod["metadata"]["uid"] == before[member]["metadata"]["uid"]:
        return False
    return f"{member}.seven-etcd:2379 answers" in jobs.plane.kubectl("logs", member, "-n", jobs.namespace)


def test_a_user_is_told_what_is_wrong(jobs: Jobs, machine: Kubelet) -> None:
    assert "there is no job in namespace" in jobs.run("list")
    for verb in ("status", "wait", "logs", "cancel", "suspend"):
        assert "there is no job nobody" in jobs.run(verb, "nobody", code=2)
    flags = ("--nnodes=1", "--no-wait")
    assert "there is no ServiceAccount other" in jobs.run(
        "submit", "--name=bad", "--image=any", "--service-account=other", *flags, "--", "t.py", code=2
    )
    jobs.run("submit", "--name=pull", "--image=missing/train:1", *flags, "--", "t.py")
    jobs.wait(
        lambda: "ImagePullBackOff" in jobs.run("status", "pull") and "missing/train:1" in jobs.run("status", "pull"),
        lambda: jobs.run("status", "pull"),
    )
    jobs.run("delete", "pull")
