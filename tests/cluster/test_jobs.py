"""Whole jobs on a real API server, controller manager and scheduler; each pod is a process."""

import json
from collections.abc import Mapping
from typing import Any

import pytest

from elastic_run.master.nodes.kubernetes import objects
from tests.doubles.pod_security import CASES, pod_with, violations

from .control_plane import ControlPlane
from .jobs import Jobs
from .process_kubelet import BARE, Kubelet

pytestmark = pytest.mark.xdist_group("kubernetes")


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


def test_it_scales_is_suspended_and_goes_on_and_no_node_notices_that_its_master_is_killed(
    jobs: Jobs, machine: Kubelet
) -> None:
    jobs.submit("one", "--nnodes=1:3")
    jobs.until("one", 3)
    before = {name: each["metadata"]["uid"] for name, each in jobs.running().items()}
    assert jobs.job("one")["spec"]["backoffLimit"] == objects.ATTEMPTS, "a master has begun"
    (master,) = jobs.running("master")
    jobs.plane.kubectl("delete", "pod", master, "-n", jobs.namespace, "--grace-period=0", "--force")
    jobs.wait(lambda: set(jobs.running("master")) - {master}, lambda: "another master")
    lost = next(iter(before))
    jobs.plane.kubectl("delete", "pod", lost, "-n", jobs.namespace, "--wait=false")
    jobs.wait(lambda: len(jobs.running()) == 3 and before[lost] not in uids(jobs), lambda: "another node")
    jobs.until("one", 3)
    assert len(set(before.values()) & uids(jobs)) == 2, "one was replaced, and the others are the same"
    jobs.run("scale", "one", "2")
    jobs.until("one", 2)
    assert "wanted: 2: its user has scaled it" in jobs.run("status", "one")
    assert len(jobs.running()) == 2
    jobs.run("scale", "one", "3")
    jobs.until("one", 3)
    jobs.run("suspend", "one")
    jobs.wait(lambda: not jobs.running(), lambda: f"no node: {jobs.status('one')}")
    assert jobs.status("one")["state"] == "suspended"
    jobs.run("resume", "one")
    jobs.until("one", 3)
    jobs.release()
    jobs.run("wait", "one")


def uids(jobs: Jobs) -> set[str]:
    """Of the nodes that run."""
    return {each["metadata"]["uid"] for each in jobs.running().values()}


def memory(jobs: Jobs, job: str) -> list[int]:
    """Limits of its pods that run."""
    pods = jobs.running(job=job).values()
    limits = [each["spec"]["containers"][0]["resources"]["limits"]["memory"] for each in pods]
    return [json.loads(each) if each.isdigit() else 0 for each in limits]


HUNGRY = """
import os, pathlib, resource, sys, time
limit = int(pathlib.Path(sys.argv[1]).with_name("hungry").read_text())
kept = bytearray(limit)
while not pathlib.Path(sys.argv[1]).exists():
    time.sleep(0.05)
"""
"""A script that needs as many bytes as a file says."""


def test_a_higher_priority_takes_places_and_memory_and_the_job_grows_back(jobs: Jobs, plane: ControlPlane) -> None:
    for name, value in (("low", 10), ("high", 1000)):
        kind = {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass"}
        plane.apply({**kind, "metadata": {"name": name}, "value": value})
    (jobs.folder / "hungry").write_text(str(800 << 20))
    with jobs.machine(cpu=4):
        jobs.submit("low", "--nnodes=1:3", "--priority-class=low")
        jobs.until("low", 3)
        before = set(jobs.running())
        container = {"name": "service", "image": "any", "command": ["sleep", "1000"]}
        spec = {"containers": [{**container, "resources": {"requests": {"cpu": "2"}}}], "priorityClassName": "high"}
        metadata = {"name": "service", "namespace": jobs.namespace}
        spec["terminationGracePeriodSeconds"] = 1
        plane.apply({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": objects.restricted(spec)})
        found = jobs.until("low", 1)
        assert found["incidents"] and "left" in found["incidents"][-1]["reason"], found
        jobs.wait(
            lambda: any(
                each["code"] == "Unschedulable" and "Insufficient cpu" in each["reason"]
                for each in objects.status_of(jobs.find("configmaps", "low"))["waiting"]
            ),
            lambda: f"a pod that waits for a place: {jobs.status('low')['waiting']}",
        )
        stayed = set(jobs.running()) & before
        assert len(stayed) == 1
        plane.kubectl("delete", "pod", "service", "-n", jobs.namespace)
        jobs.until("low", 3)
        assert stayed <= set(jobs.running()), "who kept its place is the same pod"
        masters = jobs.running("master")
        memories = ("--memory=512Mi", "--memory-cap=2Gi")
        jobs.submit("hungry", "--nnodes=1", *memories, "--priority-class=high", script=HUNGRY)
        found = jobs.until("low", 2)
        assert "left" in found["incidents"][-1]["reason"], found
        jobs.until("hungry", 1)
        # From 512 MiB to 768 MiB, which is too little, to 1152 MiB.
        jobs.wait(lambda: memory(jobs, "hungry") == [1152 << 20], lambda: f"more memory: {memory(jobs, 'hungry')}")
        assert set(jobs.running("master")) >= set(masters), "both masters stay"
        jobs.release()
        jobs.run("wait", "hungry")
        jobs.run("wait", "low")


def test_a_lost_machine_is_replaced_on_another(jobs: Jobs) -> None:
    with jobs.machine("lost-a", cpu=3) as first:
        template = jobs.folder / "impatient.yaml"
        keys = [f"node.kubernetes.io/{state}" for state in ("not-ready", "unreachable")]
        soon = [{"key": key, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 2} for key in keys]
        template.write_text(json.dumps({"spec": {"tolerations": soon}}))
        jobs.submit("two", "--nnodes=1:2", f"--pod-template={template}")
        jobs.until("two", 2)
        with jobs.machine("lost-b", cpu=3):
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


def test_a_script_that_fails_and_an_agent_that_refuses_its_flags_end_their_jobs_with_the_reason(
    jobs: Jobs, machine: Kubelet
) -> None:
    template = jobs.folder / "flags.yaml"
    env = [{"name": "PET_MAX_RESTARTS", "value": "many"}]
    template.write_text(json.dumps({"spec": {"containers": [{"name": "agent", "env": env}]}}))
    jobs.submit("refused", "--nnodes=1", f"--pod-template={template}")
    jobs.submit("five", "--nnodes=1", "--max-restarts=0", script="raise ValueError('no such layer')")
    jobs.run("wait", "five", code=1)
    found = jobs.status("five")
    assert found["state"] == "failed" and "ValueError" in found["reason"], found
    jobs.run("wait", "refused", code=1)
    found = jobs.status("refused")
    assert "it cannot have its nodes: refused-worker-0" in found["reason"] and "exit code 2" in found["reason"], found
    assert list(jobs.pods(job="refused")) == ["refused-worker-0"], "it is given up"
    for name in ("five", "refused"):
        jobs.wait(
            lambda name=name: any(each["type"] == "Failed" for each in jobs.job(name)["status"].get("conditions", ())),
            lambda name=name: f"the Job to have failed: {jobs.job(name)['status']}",
        )
    assert len(jobs.pods("master")) == 2, "no second master"


def test_a_job_that_is_cancelled_gives_its_places_back_and_keeps_its_logs(jobs: Jobs, machine: Kubelet) -> None:
    jobs.submit("off", "--nnodes=2")
    jobs.until("off", 2)
    jobs.run("cancel", "off")
    jobs.run("wait", "off", code=1)
    assert jobs.status("off")["reason"] == "it was cancelled by its user"
    assert len(jobs.pods(job="off")) == 2 and not jobs.running(job="off")
    said = jobs.run("logs", "off")
    assert "rank 0 of 2" in said and "rank 1 of 2" in said, said
    assert said.count("this node leaves the job: it was cancelled by its user") == 2, said


def test_a_drained_machine_gives_up_its_nodes(jobs: Jobs) -> None:
    with jobs.machine() as drained, jobs.machine(f"{jobs.namespace}-2") as other:
        jobs.plane.kubectl("cordon", other.name)
        jobs.submit("eight", "--nnodes=1:2")
        jobs.until("eight", 2)
        (master,) = jobs.running("master")
        jobs.plane.kubectl("uncordon", other.name)
        jobs.plane.kubectl("drain", drained.name, "--delete-emptydir-data", "--ignore-daemonsets", "--timeout=100s")
        jobs.wait(lambda: set(jobs.running("master")) - {master}, lambda: "another master")
        jobs.until("eight", 2)
        assert {each["spec"]["nodeName"] for each in jobs.running().values()} == {other.name}
        jobs.release()
        jobs.run("wait", "eight")


def test_every_pod_is_admitted_by_a_quota_that_wants_limits_and_by_a_machine_with_a_taint(
    jobs: Jobs, machine: Kubelet
) -> None:
    jobs.plane.kubectl("create", "quota", "all", "-n", jobs.namespace, "--hard=limits.cpu=20,limits.memory=40Gi")
    jobs.plane.kubectl("taint", "nodes", machine.name, "team=vision:NoSchedule")
    template = jobs.folder / "limited.yaml"
    agent = {"name": "agent", "resources": {"limits": {"cpu": "1", "memory": "2Gi"}}}
    spec = {"tolerations": [{"key": "team", "operator": "Exists"}], "containers": [agent]}
    metadata = {
        "labels": {"team": "vision"},
        "annotations": {"container.apparmor.security.beta.kubernetes.io/agent": "runtime/default"},
    }
    template.write_text(json.dumps({"metadata": metadata, "spec": spec}))
    jobs.submit("held", "--nnodes=1", "--store-replicas=1", f"--pod-template={template}", outside=False)
    jobs.until("held", 1)
    for component in ("master", "store", "node"):
        (pod,) = jobs.running(component).values()
        assert pod["metadata"]["labels"]["team"] == "vision" and violations(pod) == set()
    jobs.release()
    jobs.run("wait", "held")


def test_a_namespace_refuses_the_pods_that_the_check_refuses(jobs: Jobs) -> None:
    if jobs.plane.version < (1, 23):
        pytest.skip("PodSecurity came with Kubernetes 1.23: make test-kubernetes runs these tests on a newer one")
    for pod, container, refused in CASES:
        given = json.dumps(pod_with(pod, container))
        words = ("create", "--dry-run=server", "-n", jobs.namespace, "-f", "-")
        said = jobs.plane.kubectl(*words, data=given, fails=bool(refused))
        named = said.replace(" ", "").lower()  # "AppArmor profile" is how it calls that field
        assert all(field.lower() in named for field in refused), (refused, said)


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


def test_a_store_without_a_quorum_is_told_with_its_members_since_when_and_what_follows(
    jobs: Jobs, machine: Kubelet
) -> None:
    """Meanwhile the time passes after which a job that has ended goes with all that is its own."""
    short = ("--nnodes=1", "--store-replicas=1", "--ttl=60")
    jobs.submit("short", *short, script="print('it goes')", outside=False)
    jobs.run("wait", "short")
    jobs.submit("ten", "--nnodes=1", outside=False)
    jobs.until("ten", 1)
    jobs.plane.kubectl("cordon", machine.name)
    lost = ("ten-etcd-0", "ten-etcd-2")
    jobs.plane.kubectl("delete", "pod", *lost, "-n", jobs.namespace, "--grace-period=0", "--force")

    def reason() -> str:
        found = objects.status_of(jobs.find("configmaps", "ten"))
        return str(found["reason"]) if found["state"] == "degraded" else ""

    jobs.wait(lambda: all(f"{name}: there is no place" in reason() for name in lost), lambda: f"word of it: {reason()}")
    said = jobs.run("status", "ten")
    assert said.startswith("ten: degraded: the store has not answered since ") and "workers train on" in said
    assert "(no quorum: " in said and "of its 3 members do not answer" in said and "unschedulable" in said
    jobs.plane.kubectl("uncordon", machine.name)
    jobs.wait(lambda: not reason(), lambda: reason())
    jobs.until("ten", 1)
    jobs.release()
    jobs.run("wait", "ten")
    kinds = "pods,jobs,configmaps,secrets,statefulsets,services,poddisruptionbudgets"
    which = (kinds, "-n", jobs.namespace, "-l", "elastic-run.dev/job=short")
    jobs.wait(lambda: not jobs.plane.get(*which)["items"], lambda: jobs.plane.kubectl("get", *which))


def _answers(jobs: Jobs, member: str, before: Mapping[str, Any]) -> bool:
    """The member runs in another pod, and has joined the others."""
    pod = jobs.running("store").get(member)
    if pod is None or pod["metadata"]["uid"] == before[member]["metadata"]["uid"]:
        return False
    return f"{member}.seven-etcd:2379 answers" in jobs.plane.kubectl("logs", member, "-n", jobs.namespace)


def test_a_store_that_can_never_begin_ends_its_job_and_nothing_of_it_stays(jobs: Jobs, machine: Kubelet) -> None:
    own = ("--nnodes=1", "--store-replicas=1")
    jobs.submit("pull", *own, "--store-image=missing/etcd:1", outside=False)
    jobs.submit("root", *own, "--store-image=root/etcd:1", outside=False)
    jobs.submit("bare", *own, f"--store-image={BARE}/train:1", outside=False)
    for name, words, advice in (
        ("root", "container has runAsNonRoot and image will run as root", "{runAsUser: 1000}"),
        ("bare", "it ended with exit code 2: ", "etcd is not installed"),
    ):
        jobs.run("wait", name, code=1)
        found = jobs.status(name)
        assert f"the pod {name}-etcd-0 of its store" in found["reason"] and words in found["reason"], found
        assert advice in found["reason"] and found["exitCode"] == 1, found
    # A registry may be back in a while.
    found = jobs.status("pull")
    assert found["state"] == "pending" and "missing/etcd:1" in found["reason"], found
    assert [(each["pod"], each["code"]) for each in found["waiting"]] == [("pull-etcd-0", "CannotStart")]
    jobs.wait(lambda: [*jobs.pods("store")] == ["pull-etcd-0"], lambda: f"the others to end: {[*jobs.pods('store')]}")
    jobs.wait(lambda: not jobs.pods(job="root") and [*jobs.running("master")], lambda: "the masters to end")
    for name in ("root", "bare"):
        jobs.wait(lambda name=name: "Failed" in str(jobs.job(name)["status"]), lambda: "the Job to fail")


def test_a_user_is_told_what_is_wrong_and_can_cancel_a_job_whose_pods_cannot_start(
    jobs: Jobs, machine: Kubelet
) -> None:
    assert "there is no job in namespace" in jobs.run("list")
    template = jobs.folder / "pod.yaml"
    sidecar = {"name": "logs", "image": "missing/logs:1", "command": ["sleep", "1000"]}
    template.write_text(json.dumps({"spec": {"containers": [{"name": "agent"}, sidecar]}}))
    jobs.submit("six", "--nnodes=1:2", f"--pod-template={template}")
    waiting: list[Any] = []

    def told() -> bool:
        waiting[:] = objects.status_of(jobs.find("configmaps", "six")).get("waiting") or ()
        return bool(waiting)

    jobs.wait(told, lambda: "word of the image")
    assert {each["code"] for each in waiting} == {"CannotStart"}
    # A kubelet says the first when it has tried, and the second while it waits to try again.
    reason = waiting[0]["reason"]
    assert ("ErrImagePull" in reason or "ImagePullBackOff" in reason) and "missing/logs:1" in reason
    assert "missing/logs:1" in jobs.run("status", "six")
    jobs.run("cancel", "six")
    # A master gives nodes half a minute to end; meanwhile:
    flags = ("--nnodes=1", "--no-wait")
    jobs.run("submit", "--name=pull", "--image=missing/train:1", *flags, "--", "t.py")
    for verb in ("status", "wait", "logs", "cancel", "suspend"):
        assert "there is no job nobody" in jobs.run(verb, "nobody", code=2)
    assert "there is no ServiceAccount other" in jobs.run(
        "submit", "--name=bad", "--image=any", "--service-account=other", *flags, "--", "t.py", code=2
    )
    jobs.wait(
        lambda: "ImagePullBackOff" in jobs.run("status", "pull") and "missing/train:1" in jobs.run("status", "pull"),
        lambda: jobs.run("status", "pull"),
    )
    jobs.run("delete", "pull")
    jobs.run("submit", "--name=root", "--image=root/train:1", *flags, "--store-replicas=1", "--", "t.py")
    jobs.wait(lambda: "image will run as root" in jobs.run("status", "root"), lambda: jobs.run("status", "root"))
    said = jobs.run("wait", "root", code=1)
    assert "container: master" in said and "{runAsUser: 1000}" in said
    jobs.wait(lambda: not jobs.pods("store", "root"), lambda: "the store to end with the job")
    jobs.run("wait", "six", code=1)
    assert jobs.status("six")["reason"] == "it was cancelled by its user"
    jobs.wait(lambda: not jobs.running(), lambda: "no node to run")
