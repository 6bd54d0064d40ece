"""A job's objects in a cluster, what a pod says of its node, and what `elastic-job submit` refuses."""

import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import pytest

from elastic_run.launcher.cluster import request as job
from elastic_run.launcher.cluster.command import main
from elastic_run.launcher.cluster.managed_nodes import Wish, wanted
from elastic_run.launcher.errors import UsageError
from elastic_run.master.machine.targets import Target, Targets
from elastic_run.master.nodes.kubernetes import elastic_job, objects, pods, store
from elastic_run.master.nodes.kubernetes.objects import BadRequest, Control, Request
from elastic_run.master.nodes.node_manager import Wanted
from elastic_run.master.nodes.reconcile import Demand
from elastic_run.master.nodes.replica import (
    CannotStart,
    Exited,
    Launch,
    MachineLost,
    NeverStarted,
    OutOfMemory,
    Preempted,
    Promised,
    Starting,
    Submitted,
    Unschedulable,
)
from elastic_run.rendezvous.reasons import JobOver, MayHave
from tests.doubles.pod_security import CASES, pod_with, violations

OWNER = {"apiVersion": "batch/v1", "kind": "Job", "name": "night", "uid": "1"}

REQUEST = Request(
    name="night",
    run="night-1",
    image="registry/train:1",
    flags=("--nnodes=2:8",),
    command=("train.py", "--path=$(HOME)"),
    cpu="2",
    memory="4Gi",
    gpus=1,
    priority_class="low",
    env={"MODE": "fast"},
)


def made(launch: Launch, request: Request = REQUEST) -> Any:
    template = objects.with_command(objects.node_template(request, launch.role), ["elastic-run", "train.py"])
    return pods.made("night", template, [OWNER], launch)


def seen(status: Mapping[str, object], launch: Launch = Launch("", 3, 1, 2)) -> Any:  # noqa: B008  a frozen value
    return pods.replica_of({**made(launch), "status": status}, 7.0)


def test_a_pod_says_again_which_replica_it_is() -> None:
    found = seen({"phase": "Running"})
    assert (found.name, found.role, found.index, found.attempt, found.counted) == ("night-worker-3-1", "", 3, 1, 2)
    assert (found.state, found.since, found.memory, found.raised) == ("running", 7.0, 4 << 30, 0)
    raised = seen({"phase": "Running"}, Launch("ps", 0, 0, raised=6 << 30))
    assert (raised.name, raised.memory, raised.raised) == ("night-ps-0", 6 << 30, 6 << 30)


def test_a_pod_of_somebody_else_is_no_replica() -> None:
    assert pods.replica_of({"metadata": {"name": "other"}, "status": {"phase": "Running"}}, 0.0) is None


ROOT = "container has runAsNonRoot and image will run as root (pod: a, container: agent)"


def again(
    restarts: int, state: Mapping[str, object], code: int, message: str = "", name: str = "store"
) -> Mapping[str, object]:
    """A container that was started so often again, and ended so the last time."""
    last = {"exitCode": code, "reason": "Error", "message": message}
    return {"name": name, "restartCount": restarts, "state": state, "lastState": {"terminated": last}}


@pytest.mark.parametrize(
    ("status", "expected"),
    [
        ({}, Submitted()),
        ({"conditions": [{"type": "PodScheduled", "status": "True"}]}, Starting()),
        (
            {"conditions": [{"type": "PodScheduled", "status": "False", "message": "0/3 nodes are available"}]},
            Unschedulable("0/3 nodes are available"),
        ),
        (
            {"conditions": [{"type": "PodScheduled", "status": "False"}], "nominatedNodeName": "m1"},
            Promised(),
        ),
        (
            {"containerStatuses": [{"state": {"waiting": {"reason": "ErrImagePull", "message": "no such image"}}}]},
            CannotStart("ErrImagePull: no such image"),
        ),
        ({"containerStatuses": [{"state": {"waiting": {"reason": "ContainerCreating"}}}]}, Starting()),
        # What no patience helps against.
        (
            {"containerStatuses": [{"state": {"waiting": {"reason": "InvalidImageName", "message": "UPPER"}}}]},
            CannotStart("InvalidImageName: UPPER", never=True),
        ),
        (
            {"containerStatuses": [{"state": {"waiting": {"reason": "CreateContainerConfigError", "message": ROOT}}}]},
            CannotStart(f"CreateContainerConfigError: {ROOT}", never=True),
        ),
        # A sidecar that the machine starts again and again holds the agent up.
        (
            {
                "conditions": [{"type": "PodScheduled", "status": "True"}],
                "initContainerStatuses": [
                    again(4, {"waiting": {"reason": "CrashLoopBackOff"}}, 3, "[x] no key", "proxy")
                ],
            },
            CannotStart(
                "its container proxy ends again and again (5 times): it ended with exit code 3: [x] no key", never=False
            ),
        ),
    ],
)
def test_why_a_pod_is_pending(status: Mapping[str, object], expected: object) -> None:
    assert seen({"phase": "Pending", **status}).pending == expected


@pytest.mark.parametrize(
    ("container", "expected"),
    [
        (again(0, {"running": {}}, 0), None),
        (again(1, {"running": {}}, 2), None),
        (
            again(1, {"waiting": {"reason": "CrashLoopBackOff"}}, 2, "no etcd"),
            ("its container store ends again and again (2 times): it ended with exit code 2: no etcd", False),
        ),
        (
            again(2, {"waiting": {"reason": "CrashLoopBackOff"}}, 2, "no etcd"),
            ("its container store ends again and again (3 times): it ended with exit code 2: no etcd", True),
        ),
        ({**again(3, {"running": {}}, 2), "ready": True}, None),
        (
            again(3, {"running": {}}, 1),
            ("its container store ends again and again (3 times): it ended with exit code 1", False),
        ),
    ],
)
def test_a_container_that_ends_again_and_again_is_told_with_its_last_words(
    container: Mapping[str, object], expected: tuple[str, bool] | None
) -> None:
    found = pods.pending_of({"status": {"phase": "Running", "containerStatuses": [container]}})
    assert found == (CannotStart(*expected) if expected else None)


def ended(code: int, reason: str = "Error", message: str = "") -> Mapping[str, object]:
    terminated = {"exitCode": code, "reason": reason, "message": message}
    return {"phase": "Failed", "containerStatuses": [{"state": {"terminated": terminated}}]}


@pytest.mark.parametrize(
    ("status", "expected"),
    [
        ({"phase": "Succeeded", "containerStatuses": [{"state": {"terminated": {"exitCode": 0}}}]}, Exited(0)),
        (ended(1), Exited(1)),
        (
            ended(2, "Error", "a warning\n[elastic-run] there is no\x1b script\n\n"),
            Exited(2, r"there is no\x1b script"),
        ),
        (ended(137, "OOMKilled"), OutOfMemory(4 << 30)),
        # Its machine was started again.
        (ended(255, "Unknown"), MachineLost("it was started again, with this node on it")),
        (ended(137, "ContainerStatusUnknown", "not found"), MachineLost("not found")),
        # A sidecar that ends after the agent, and a container without which the agent did not begin.
        ({**ended(137, "OOMKilled"), "initContainerStatuses": ended(143)["containerStatuses"]}, OutOfMemory(4 << 30)),
        (
            {
                "phase": "Failed",
                "containerStatuses": [
                    {"name": "sidecar", "state": {"terminated": {"exitCode": 143}}},
                    {"name": "agent", "state": {"terminated": {"exitCode": 0}}},
                ],
            },
            Exited(0),
        ),
        (
            {
                "phase": "Failed",
                "initContainerStatuses": [
                    {"state": {"terminated": {"exitCode": 0}}},
                    {"state": {"terminated": {"exitCode": 3}}},
                ],
                "containerStatuses": [{"state": {"waiting": {"reason": "PodInitializing"}}}],
            },
            Exited(3),
        ),
        (
            {
                "phase": "Failed",
                "initContainerStatuses": [
                    {"name": "prep", "state": {"terminated": {"exitCode": 2, "message": "it asks\nno such bucket\n"}}}
                ],
                "containerStatuses": [{"name": "agent", "state": {"waiting": {"reason": "PodInitializing"}}}],
            },
            Exited(2, "no such bucket", "prep"),
        ),
        (
            {
                "phase": "Failed",
                "initContainerStatuses": [
                    {"name": "prep", "state": {"terminated": {"exitCode": 137, "reason": "OOMKilled"}}}
                ],
                "containerStatuses": [{"name": "agent", "state": {"waiting": {"reason": "PodInitializing"}}}],
            },
            Exited(137, "it needed more memory than its limit", "prep"),
        ),
        (ended(128, "StartError", "no such file"), NeverStarted("StartError: no such file")),
        ({"phase": "Failed", "reason": "Evicted", "message": "disk pressure"}, Preempted("Evicted: disk pressure")),
        ({"phase": "Failed", "reason": "NodeLost", "message": "silent"}, MachineLost("NodeLost: silent")),
        (
            {
                **ended(143),
                "conditions": [
                    {
                        "type": "DisruptionTarget",
                        "status": "True",
                        "reason": "PreemptionByScheduler",
                        "message": "for another",
                    }
                ],
            },
            Preempted("PreemptionByScheduler: for another"),
        ),
        (
            {
                "phase": "Failed",
                "conditions": [
                    {"type": "DisruptionTarget", "status": "True", "reason": "DeletionByTaintManager", "message": "x"}
                ],
            },
            MachineLost("DeletionByTaintManager: x"),
        ),
    ],
)
def test_how_a_pod_ended(status: Mapping[str, object], expected: object) -> None:
    assert seen(status).end == expected


@pytest.mark.parametrize(("given", "said"), [({}, "true"), ({"annotations": {objects.EVICTABLE: "false"}}, "false")])
def test_the_autoscaler_may_take_each_pods_machine_unless_the_template_says_otherwise(given: object, said: str) -> None:
    """As `kubectl drain` may: another pod follows at once."""
    for kind, pod in pods_of({"metadata": given}).items():
        assert pod["metadata"]["annotations"][objects.EVICTABLE] == said, kind


def test_an_end_is_told_as_that_of_the_container_that_ended() -> None:
    assert str(Exited(2, "no such bucket", "prep")) == "its container prep ended with exit code 2: no such bucket"
    assert str(Exited(143, "", "prep")) == "its container prep was ended by SIGTERM"
    given = {"spec": {"containers": [{"name": "agent"}, {"name": "side"}], "initContainers": [{"name": "prep"}]}}
    spec = objects.node_template(replace(REQUEST, template=given), "")["spec"]
    kept = {each["name"]: each["terminationMessagePolicy"] for each in (*spec["containers"], *spec["initContainers"])}
    assert kept == dict.fromkeys(("agent", "side", "prep"), "FallbackToLogsOnError")


def test_a_node_whose_agent_runs_is_one_that_runs_whatever_its_sidecar_waits_for() -> None:
    """Such a pod is pending for the cluster; a job is not ended for it, and its sidecar is told of all the same."""
    agent = {"name": "agent", "state": {"running": {}}}
    side = {"name": "side", "state": {"waiting": {"reason": "ErrImagePull", "message": "no such image"}}}
    found = seen({"phase": "Pending", "containerStatuses": [agent, side]})
    assert (found.state, found.pending) == ("running", CannotStart("ErrImagePull: no such image"))


@pytest.mark.parametrize(
    ("begin", "end", "counted"),
    [
        ("2026-11-27T08:00:00Z", "2026-11-27T08:59:59Z", 2),
        ("2026-11-27T08:00:00Z", "2026-11-27T09:00:00Z", 0),
        (None, "2026-11-27T09:00:00Z", 2),
        ("no time", "2026-11-27T09:00:00Z", 2),
    ],
)
def test_what_a_node_did_before_one_that_was_long_well_is_forgotten(begin: str | None, end: str, counted: int) -> None:
    terminated = {"exitCode": 1, "startedAt": begin, "finishedAt": end}
    status = {"phase": "Failed", "containerStatuses": [{"name": "agent", "state": {"terminated": terminated}}]}
    assert seen(status).counted == counted


def test_the_nodes_of_a_job_ask_for_what_was_said() -> None:
    pod = made(Launch("", 0, 0))
    spec, (agent,) = pod["spec"], pod["spec"]["containers"]
    assert agent["resources"] == {
        "requests": {"cpu": "2", "memory": "4Gi", "nvidia.com/gpu": "1"},
        "limits": {"memory": "4Gi", "nvidia.com/gpu": "1"},
    }
    assert spec["priorityClassName"] == "low" and spec["restartPolicy"] == "Never"
    assert spec["automountServiceAccountToken"] is False
    assert {"name": "MODE", "value": "fast"} in agent["env"]
    assert pod["metadata"]["ownerReferences"] == [OWNER]


def test_the_users_own_pod_keeps_what_it_says() -> None:
    template = {
        "metadata": {"labels": {"team": "vision"}},
        "spec": {
            "tolerations": [{"key": "spot"}],
            "containers": [
                {"name": "logs", "image": "logs:1"},
                {"name": "agent", "env": [{"name": "A", "value": "1"}]},
            ],
        },
    }
    pod = objects.node_template(Request("n", "r", "train:1", (), ("t.py",), template=template), "")
    logs, agent = pod["spec"]["containers"]
    assert pod["spec"]["tolerations"][0] == {"key": "spot"} and pod["metadata"]["labels"]["team"] == "vision"
    assert (logs["name"], logs["image"]) == ("logs", "logs:1")
    assert logs.keys() == {"name", "image", "securityContext", "terminationMessagePolicy"}
    assert agent["image"] == "train:1" and {"name": "A", "value": "1"} in agent["env"]
    assert template["spec"]["containers"][1] == {"name": "agent", "env": [{"name": "A", "value": "1"}]}


@pytest.mark.parametrize(
    ("words", "seconds"),
    [
        ([], job.YEAR),
        (["--rdzv-conf=settle=0,join_timeout=3600.5"], 3601),
        (["--rdzv-conf=timeout=0"], 1800),  # its image is to be pulled first
        # Who applies it again would set the limit anew, of a job that trains.
        (["--rdzv-conf=join_timeout=90", "--dry-run"], None),
    ],
)
def test_the_cluster_itself_waits_no_longer_for_a_master_than_that_for_nodes(
    words: list[str], seconds: int | None
) -> None:
    request = job.submitted(["--name=n", "--image=i", *words, "--", "t.py"], {})
    assert objects.master_job(request)["spec"].get("activeDeadlineSeconds") == seconds


def test_the_nodes_with_the_lowest_indexes_give_way_last() -> None:
    request = replace(REQUEST, high_priority_class="high", high_priority={"": 2})
    pods_made = [made(Launch("", index, 0), request) for index in range(4)]
    assert [each["spec"]["priorityClassName"] for each in pods_made] == ["high", "high", "low", "low"]
    assert pods.HIGH_PRIORITY not in pods_made[0]["metadata"]["annotations"]
    assert objects.master_job(request)["spec"]["template"]["spec"]["priorityClassName"] == "high"


@pytest.mark.parametrize(
    ("fraction", "nodes", "counts"),
    [
        ("0.5", ["--nnodes=2:8"], {"": 4}),
        ("0.1", ["--nnodes=2:8"], {"": 1}),
        ("1", ["--roles=ps:2,worker:1:4"], {"ps": 2, "worker": 4}),
    ],
)
def test_the_fraction_is_of_the_most_nodes_of_each_role(fraction: str, nodes: list[str], counts: object) -> None:
    flags = ["--image=any", "--high-priority-class=high", f"--high-priority-fraction={fraction}"]
    assert job.submitted([*flags, *nodes, "--", "train.py"], {}).high_priority == counts


@pytest.mark.parametrize(("words", "ttl"), [((), None), (("--ttl=60",), 60), (("--ttl=3600",), 3600)])
def test_the_cluster_deletes_a_job_when_its_time_after_the_end_has_passed(
    words: Sequence[str], ttl: int | None
) -> None:
    request = job.submitted(["--image=any", "--nnodes=1", *words, "--", "train.py"], {})
    assert objects.master_job(request)["spec"].get("ttlSecondsAfterFinished") == ttl


@pytest.mark.parametrize(
    ("words", "why"), [(("--ttl=0",), "ttl=0: give .* from 60 to"), (("--ttl=60", "--dry-run"), "does not own")]
)
def test_a_time_after_the_end_that_could_not_be_kept_is_refused(words: Sequence[str], why: str) -> None:
    with pytest.raises(UsageError, match=why):
        job.submitted(["--image=any", "--nnodes=1", *words, "--", "train.py"], {})


def test_the_script_reads_its_arguments_as_they_were_typed() -> None:
    container = objects.master_job(REQUEST)["spec"]["template"]["spec"]["containers"][0]
    assert container["command"][-1] == "--path=$$(HOME)"
    assert "--rdzv-endpoint=$(POD_IP):2379" in container["command"]


def test_a_job_is_not_the_controller_of_pods_that_its_controller_did_not_make() -> None:
    assert objects.owner_of({"metadata": {"name": "a", "uid": "u"}})["controller"] is False


@pytest.mark.parametrize("name", ["Night", "1st", "a_b", "a-", "", "x" * 41])
def test_a_name_that_no_object_can_have_is_refused(name: str) -> None:
    with pytest.raises(BadRequest):
        objects.check_name(name)


@pytest.mark.parametrize("text", ["", "no json", "[]", '{"scale": 3}', '{"scale": {"": true}}', '{"suspend": "yes"}'])
def test_what_a_hand_has_written_in_another_shape_is_as_at_first(text: str) -> None:
    assert Control.read(text) == Control()


def test_what_the_user_wants_is_read_as_it_was_written() -> None:
    control = Control({"worker": 3}, suspend=True).changed(cancel=True)
    assert Control.read(control.text) == control


def test_the_users_wish_is_within_what_the_job_wants() -> None:
    spans = {"": (2, 8)}

    def demanded(count: int, wish: Wish) -> Demand:
        found = wanted(Targets((Target("", count, MayHave("", 2, count)),)), spans, wish)
        assert found and not found.over
        return found.demands[0]

    assert demanded(6, Wish()) == Demand("", 6, 2)
    assert demanded(6, Wish({"": 3})) == Demand("", 3, 2)
    assert demanded(100, Wish({"": 100})) == Demand("", 8, 2), "no more than the job may have, whoever wrote that"
    assert demanded(6, Wish(suspended=True)) == Demand("", 0, 0)


def test_before_anybody_has_written_what_the_job_wants_only_its_user_decides() -> None:
    assert wanted(None, {"": (2, 8)}, Wish({"": 3})) is None, "as many as it may have may be too many"
    assert wanted(None, {"": (2, 8)}, Wish(suspended=True)) == Wanted((Demand("", 0, 0),))


@pytest.mark.parametrize(
    ("outcome", "suspended", "over"),
    [("preempted", True, False), ("preempted", False, True), ("succeeded", True, True)],
)
def test_what_is_left_of_a_run_is_stopped_only_where_its_user_has_suspended_the_job(
    outcome: str, suspended: bool, over: bool
) -> None:
    ended = Targets((Target("", 0, JobOver(outcome)),))
    assert wanted(ended, {"": (2, 8)}, Wish(suspended=suspended)) == Wanted((Demand("", 0, 0),), over)


def submit(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, str, str]:
    code = main(["submit", "--dry-run", "--image=train:1", *words])
    said = capsys.readouterr()
    return code, said.out, said.err


@pytest.mark.parametrize(
    ("package", "words"),
    [("yaml", ["submit", "--dry-run"]), ("yaml", ["submit", "--pod-template=pod.yaml"]), ("kubernetes", ["submit"])],
)
def test_a_package_that_is_not_installed_is_named(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], package: str, words: list[str]
) -> None:
    for name in [each for each in sys.modules if each.partition(".")[0] == package or each.endswith("kubernetes.api")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, package, None)
    assert main([*words, "--image=train:1", "--", "train.py"]) == 2
    assert "pip install 'elastic-run[kubernetes]'" in capsys.readouterr().err


def test_a_job_has_a_store_of_its_own_in_which_no_pod_is_special() -> None:
    request = job.submitted(["--image=train:1", "--name=night", "--nnodes=2", "--priority-class=low", "--", "t.py"], {})
    members = "night-etcd-0.night-etcd:2379,night-etcd-1.night-etcd:2379,night-etcd-2.night-etcd:2379"
    service, budget, stateful = store.parts(request, OWNER)
    (container,) = stateful.object["spec"]["template"]["spec"]["containers"]
    assert (
        f"--rdzv-endpoint={members}"
        in objects.master_job(request)["spec"]["template"]["spec"]["containers"][0]["command"]
    )
    assert container["command"][:3] == ["elastic-run", "store", f"--rdzv-endpoint={members}"]
    assert container["image"] == "train:1" and stateful.object["spec"]["replicas"] == 3
    assert stateful.object["spec"]["template"]["spec"]["priorityClassName"] == "low", "as the master"
    assert stateful.object["spec"]["template"]["spec"]["automountServiceAccountToken"] is False
    assert service.object["spec"]["selector"] == budget.object["spec"]["selector"]["matchLabels"]
    assert (
        service.object["spec"]["selector"].items() <= stateful.object["spec"]["template"]["metadata"]["labels"].items()
    )
    assert all(part.object["metadata"]["ownerReferences"] == [OWNER] for part in (service, budget, stateful))
    (conf,) = [flag for flag in request.flags if flag.startswith("--rdzv-conf=")]
    assert "is_host=false" in conf.split(","), "neither the master nor a node starts an etcd"


def test_the_members_of_a_store_that_do_not_answer_are_told_with_why() -> None:
    ready = {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}
    lost = {"phase": "Running", "conditions": [{"type": "Ready", "status": "False"}]}
    waits = {"conditions": [{"type": "PodScheduled", "status": "False", "message": "0/1 nodes are available"}]}

    def absent(*statuses: Mapping[str, Any]) -> str:
        found = [
            {"metadata": {"name": f"night-etcd-{index}"}, "spec": {"nodeName": "m1"}, "status": status}
            for index, status in enumerate(statuses)
        ]
        return store.absent("night", 3, found)

    assert absent(ready, ready, ready) == "" == store.absent("night", 0, [])
    assert absent(ready, lost) == (
        "no quorum: 2 of its 3 members do not answer: night-etcd-1: its pod runs, on machine m1, "
        "night-etcd-2 has no pod"
    )
    one = absent(ready, waits, ready)
    assert one.startswith("1 of its 3 members do not answer: night-etcd-1: ") and "0/1 nodes are available" in one


@pytest.mark.parametrize(
    ("words", "endpoint"),
    [(["--store-replicas=0"], ""), (["--rdzv-endpoint=https://etcd:2379"], "https://etcd:2379")],
)
def test_a_store_in_the_masters_pod_or_of_the_users_own_needs_no_objects(words: list[str], endpoint: str) -> None:
    request = job.submitted(["--image=train:1", "--name=night", "--nnodes=2", *words, "--", "t.py"], {})
    assert request.endpoint == endpoint and store.parts(request, OWNER) == ()
    assert any("is_host=false" in flag for flag in request.flags) is bool(endpoint)


def test_one_member_of_another_image() -> None:
    words = ["--image=train:1", "--name=night", "--store-replicas=1", "--store-image=small:1"]
    *_, stateful = store.parts(job.submitted([*words, "--", "t.py"], {}), OWNER)
    assert stateful.object["spec"]["replicas"] == 1
    assert stateful.object["spec"]["template"]["spec"]["containers"][0]["image"] == "small:1"


def test_a_pod_in_its_machines_network_knows_the_names_of_the_store() -> None:
    request = Request("n", "r", "train:1", (), ("t.py",), template={"spec": {"hostNetwork": True}})
    assert objects.node_template(request, "")["spec"]["dnsPolicy"] == "ClusterFirstWithHostNet"


def pods_of(template: Mapping[str, Any], *words: str) -> dict[str, Any]:
    """The pods, or their templates, of the job that is submitted with that template."""
    flags = ["--image=train:1", "--name=night", *(words or ["--nnodes=2"]), "--", "t.py"]
    request = job.submitted(flags, template)
    found = {"master": objects.master_job(request)["spec"]["template"]}
    found |= {part.kind: part.object["spec"].get("template") for part in store.parts(request, OWNER)}
    found = {"master": found["master"], "store": found["statefulsets"]}
    return found | {role or "worker": made(Launch(role, 0, 0), request) for role in request.roles}


REACHED = "node.kubernetes.io/unreachable"


def lost(pod: Any) -> dict[str, int | None]:
    """How long the pod stays on a machine of which the cluster says so, in seconds; None: for ever."""
    return {each["key"]: each.get("tolerationSeconds") for each in pod["spec"]["tolerations"]}


def test_a_pod_leaves_a_lost_machine_when_another_can_take_its_place() -> None:
    found = pods_of({})
    times = {"node.kubernetes.io/not-ready": 30, REACHED: 30}
    assert lost(found["worker"]) == lost(found["master"]) == times
    assert lost(found["store"]) == {REACHED: None}, "in its place the cluster puts no other"


@pytest.mark.parametrize(
    ("given", "own"),
    [
        ({"key": REACHED, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 9}, False),
        ({"key": REACHED, "operator": "Exists"}, False),
        ({"operator": "Exists"}, False),
        ({"key": REACHED, "operator": "Exists", "effect": "NoSchedule"}, True),
        ({"key": "spot", "operator": "Exists"}, True),
    ],
)
def test_what_a_template_says_of_lost_machines_counts(given: Mapping[str, object], own: bool) -> None:
    for pod in pods_of({"spec": {"tolerations": [given]}}).values():
        first, *others = pod["spec"]["tolerations"]
        assert first == given and (REACHED in [each["key"] for each in others]) is own


def agents(**fields: object) -> Mapping[str, Any]:
    return {"spec": {"containers": [{"name": "agent", "securityContext": fields}]}}


ALL = frozenset({"master", "store", "worker"})
NODES = frozenset({"worker"})
SIDECARS = {
    "initContainers": [{"name": "data", "image": "data:1"}],
    "containers": [{"name": "agent"}, {"name": "logs", "image": "logs:1", "securityContext": {"runAsUser": 7}}],
}


@pytest.mark.parametrize(
    ("template", "who", "why"),
    [
        ({}, NODES, set()),
        ({"spec": SIDECARS}, NODES, set()),
        ({"spec": {"securityContext": {"runAsUser": 1000, "fsGroup": 1000}}}, ALL, set()),
        (agents(capabilities={"add": ["NET_BIND_SERVICE"]}), NODES, set()),
        # A template that says otherwise wins: where it says as whom all run, for all.
        (
            {"spec": {"securityContext": {"runAsNonRoot": False}}},
            ALL,
            {"runAsNonRoot", "capabilities.drop"},
        ),
        (
            {"spec": {"securityContext": {"runAsUser": 0}}},
            ALL,
            {"runAsNonRoot", "runAsUser", "capabilities.drop"},
        ),
        (agents(runAsUser=0), ALL, {"runAsNonRoot", "runAsUser", "capabilities.drop"}),
        (agents(seccompProfile={"type": "Unconfined"}), ALL, {"seccompProfile"}),
        # What takes more rights is for the nodes alone.
        (agents(privileged=True), NODES, {"privileged", "allowPrivilegeEscalation"}),
        (agents(capabilities={"add": ["CAP_SYS_ADMIN"]}), NODES, {"capabilities.add", "allowPrivilegeEscalation"}),
        (agents(capabilities={"drop": ["NET_RAW"]}), NODES, {"capabilities.drop"}),
        ({"spec": {"hostNetwork": True, "hostIPC": True}}, NODES, {"hostNetwork", "hostIPC"}),
        ({"spec": {"volumes": [{"name": "data", "hostPath": {"path": "/data"}}]}}, NODES, {"volumes.hostPath"}),
    ],
)
def test_all_pods_of_a_job_conform_to_restricted_unless_the_template_says_otherwise(
    template: Mapping[str, Any], who: frozenset[str], why: set[str]
) -> None:
    found = pods_of(template)
    assert found.keys() == ALL
    assert {name: violations(pod) for name, pod in found.items()} == {
        name: why if name in who else set() for name in ALL
    }


def test_a_pod_that_says_it_is_not_root_stays_so_whatever_a_container_says() -> None:
    spec = {**agents(runAsUser=0)["spec"], "securityContext": {"runAsNonRoot": True}}
    for pod in pods_of({"spec": spec}).values():
        assert pod["spec"]["securityContext"]["runAsNonRoot"] is True
        assert "runAsNonRoot" not in pod["spec"]["containers"][0]["securityContext"]


@pytest.mark.parametrize(("pod", "container", "refused"), CASES)
def test_the_check_refuses_what_the_standard_forbids(
    pod: Mapping[str, Any], container: Mapping[str, Any], refused: set[str]
) -> None:
    assert violations(pod_with(pod, container)) == refused


EVERYWHERE: Mapping[str, Any] = {
    "imagePullSecrets": [{"name": "registry"}],
    "tolerations": [{"key": "team", "operator": "Exists"}],
    "nodeSelector": {"pool": "jobs"},
    "runtimeClassName": "gvisor",
    "schedulerName": "own",
    "priorityClassName": "low",
    "dnsPolicy": "None",
    "dnsConfig": {"nameservers": ["10.0.0.1"]},
    "hostAliases": [{"ip": "10.0.0.2", "hostnames": ["data"]}],
}


@pytest.mark.parametrize("of", ["submit", "ElasticJob"])
def test_what_of_the_template_holds_for_every_pod(of: str) -> None:
    template: Mapping[str, Any] = {
        "metadata": {
            "labels": {
                "team": "vision",
                "app.kubernetes.io/managed-by": "me",
                "elastic-run.dev/index": "7",
                "elastic-run.dev/component": "mine",
                "kueue.x-k8s.io/queue-name": "q",
            },
            "annotations": {"owner": "me", "container.apparmor.security.beta.kubernetes.io/agent": "runtime/default"},
        },
        "spec": {
            **EVERYWHERE,
            "serviceAccountName": "puller",
            "affinity": {"nodeAffinity": {}},
            "volumes": [{"name": "data", "emptyDir": {}}],
            "containers": [{"name": "agent", "env": [{"name": "A", "value": "1"}]}, {"name": "logs"}],
        },
    }
    if of == "ElasticJob":
        spec = {"image": "train:1", "command": ["t.py"], "env": [{"name": "B", "value": "2"}], "template": template}
        template = elastic_job.template(spec)
    found = pods_of(template)
    for name, pod in found.items():
        metadata, spec = pod["metadata"], pod["spec"]
        spec["tolerations"] = spec["tolerations"][:1]  # after it come those of lost machines
        assert {key: spec.get(key) for key in EVERYWHERE} == EVERYWHERE, name
        assert metadata["annotations"]["owner"] == "me" and metadata["labels"]["team"] == "vision"
        assert metadata["labels"]["app.kubernetes.io/managed-by"] == "elastic-run", "ours win"
        assert metadata["labels"]["elastic-run.dev/component"] == ("node" if name == "worker" else name)
    accounts = {name: pod["spec"]["serviceAccountName"] for name, pod in found.items()}
    assert accounts == {"master": "elastic-run", "store": "puller", "worker": "puller"}
    for name in ("master", "store"):
        (container,), metadata = found[name]["spec"]["containers"], found[name]["metadata"]
        assert "nodeAffinity" not in (found[name]["spec"].get("affinity") or {})
        assert all(each["name"] != "data" or name == "store" for each in found[name]["spec"].get("volumes") or ())
        assert not {"A", "B"} & {each["name"] for each in container["env"]}
        assert pods.replica_of(found[name], 0.0) is None, "no node"
        assert metadata["labels"].keys().isdisjoint({"kueue.x-k8s.io/queue-name"})
        assert metadata["annotations"].keys() == {"owner", objects.EVICTABLE}, (
            "what names a container that is not there is refused"
        )


@pytest.mark.parametrize(
    ("limits", "words", "limited"),
    [
        ({}, [], set()),
        ({}, ["--memory=4Gi"], {"memory"}),
        ({"cpu": 4, "memory": "8Gi", "nvidia.com/gpu": 1}, [], {"cpu", "memory"}),
        ({"ephemeral-storage": "1Gi"}, [], {"ephemeral-storage"}),
    ],
)
def test_where_nodes_have_limits_master_and_store_have_their_own(
    limits: Mapping[str, object], words: list[str], limited: set[str]
) -> None:
    found = pods_of({"spec": {"containers": [{"resources": {"limits": limits}}]}}, "--nnodes=2", *words)
    for name, most in objects.LIMITS.items():
        (container,) = found[name]["spec"]["containers"]
        assert container["resources"]["requests"]["cpu"] == "100m"
        assert container["resources"].get("limits", {}) == {key: most[key] for key in limited}


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (("--nnodes=2",), "write -- before it"),
        (("--cpu=4x", "--", "t.py"), "--cpu=4x: write a number of CPUs"),
        (("--roles=my_role:1", "--", "t.py"), "pods cannot be named after the role my_role"),
        (("--name=" + "n" * 40, "--roles=" + "r" * 20 + ":1", "--", "t.py"), "at most 50"),
        (("--rdzv-endpoint=e", "--store-replicas=1", "--", "t.py"), "--store-replicas is for a store that is made"),
        (("--rdzv-endpoint=e", "--store-image=s", "--", "t.py"), "--store-image is for a store that is made"),
        (("--store-replicas=0", "--store-image=s", "--", "t.py"), "--store-image has no effect"),
        (("--store-replicas=2", "--", "t.py"), "argument --store-replicas: invalid choice: "),
        (("--roles=etcd:1,worker:2", "--", "t.py"), "a role cannot be called etcd"),
        (("--nnods=2", "--", "t.py"), "did you mean --nnodes"),
        (("--nnodes=3:2", "--", "t.py"), "minimum above its maximum"),
        (("--node-rank=1", "--", "t.py"), "--node-rank is of one node"),
        (("--nnodes=2", "--memory=2GB", "--", "t.py"), "--memory: '2GB' is no amount of memory"),
        (("--nnodes=2", "--env=A", "--", "t.py"), "write --env=NAME=VALUE"),
        (("--nnodes=2", "--name=A_B", "--", "t.py"), "cannot be a job's name"),
        (("--nnodes=2", "--gpus=-1", "--", "t.py"), "give a number from 0"),
        (("--nnodes=2", "--high-priority-class=a", "--", "t.py"), "are given together"),
        (("--nnodes=2", "--high-priority-class=a", "--high-priority-fraction=2", "--", "t.py"), "at most 1"),
        (("--rdzv-endpoint=etcd", "--", "t.py"), "write https://etcd:2379 where that etcd has TLS"),
        (("--join-file=f", "--", "t.py"), "the job gets a secret of its own"),
        (("--tls-ca=f", "--tls-cert=f", "--tls-key=f", "--", "t.py"), "--tls-cert names a file"),
        (("--env=ELASTIC_RUN_SECRET=x", "--", "t.py"), "for everybody to read"),
    ],
)
def test_what_submit_refuses(capsys: pytest.CaptureFixture[str], words: tuple[str, ...], sentence: str) -> None:
    code, out, said = submit(capsys, *words)
    assert code == 2 and not out
    assert said.startswith("[elastic-job] ") and sentence in said, said
