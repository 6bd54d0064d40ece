"""What users change of a job on a double of the API server: no change is lost, and a job that never begins ends."""

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from elastic_run.launcher.cluster import command, operator, pod_logs, unstarted
from elastic_run.master.nodes.kubernetes import elastic_job, indexed_job, objects
from elastic_run.master.nodes.kubernetes.api import Api
from elastic_run.master.nodes.kubernetes.objects import Control
from elastic_run.master.nodes.relaunch import Limits

from ..doubles.api_double import ApiDouble, Asked, Fault
from ..doubles.double_objects import Refused

REQUEST = objects.Request("night", "night-1", "any", ("--nnodes=1:8",), ("train.py",))

PLACE = ("elasticjobs", elastic_job.API)


class Night:
    """A job in the double, of which no master knows yet."""

    def __init__(self, double: ApiDouble) -> None:
        self.double = double
        self.api = Api.load("", str(double.kubeconfig))
        self.job = double.objects.create(double.place("jobs", objects.BATCH), objects.master_job(REQUEST))
        made = objects.config_map(REQUEST, objects.owner_of(self.job))
        double.objects.create(double.place("configmaps"), made)

    def run(self, *words: str, code: int = 0) -> None:
        verb, *rest = words
        assert command.main([verb, f"--kubeconfig={self.double.kubeconfig}", *rest]) == code

    def config_map(self) -> Any:
        return self.double.all("configmaps")["night"]

    def control(self) -> Control:
        return Control.read(self.config_map()["data"][objects.CONTROL])

    def status(self) -> Any:
        return objects.status_of(self.config_map())

    def write(self, key: str, text: str) -> None:
        self.double.objects.patch(self.double.place("configmaps"), "night", {"data": {key: text}})

    def begin(self) -> None:
        """A master writes that it is there."""
        self.write(objects.STATUS, '{"state": "running"}')

    def while_it_reads(self, plural: str, change: Callable[[], None], times: int = 1) -> None:
        """Somebody else changes something, right after each of the next reads."""
        left = times

        def look(asked: Asked) -> None:
            nonlocal left
            if asked.verb == "get" and asked.place.plural == plural and left:
                left -= 1
                change()

        self.double.after = look

    def master_pod(self, name: str, status: Any) -> None:
        labels = objects.labels("night", "master")
        spec = {"containers": [{"name": "master", "image": "train:1"}], "nodeName": "m"}
        body = {"metadata": {"name": name, "labels": labels}, "spec": spec}
        made = self.double.objects.create(self.double.place("pods"), body)
        self.double.machines.say(made, status)

    def note(self, kind: str, name: str, reason: str, message: str) -> None:
        """An event, as controllers and kubelets make them."""
        about = {"kind": kind, "name": name}
        body = {"metadata": {"name": f"{name}.{len(self.double.all('events'))}"}, "involvedObject": about}
        self.double.objects.create(self.double.place("events"), {**body, "reason": reason, "message": message})


@pytest.fixture
def night(tmp_path: Path) -> Iterator[Night]:
    with ApiDouble(tmp_path) as double:
        made = Night(double)
        yield made
        made.api.close()


# -- two users --------------------------------------------------------------------------------------------------------


def test_what_two_users_change_at_one_time_is_all_there(night: Night) -> None:
    night.begin()
    night.while_it_reads("configmaps", lambda: night.write(objects.CONTROL, Control(suspend=True).text))
    night.run("scale", "night", "3")
    assert night.control() == Control({"": 3}, suspend=True)
    night.while_it_reads("configmaps", lambda: night.write(objects.CONTROL, Control({"": 5}, suspend=True).text))
    night.run("resume", "night")
    assert night.control() == Control({"": 5})


def test_a_master_that_writes_all_the_time_keeps_no_user_from_a_change(night: Night) -> None:
    rounds = iter(range(1000))
    night.while_it_reads(
        "configmaps", lambda: night.write(objects.STATUS, f'{{"state": "running", "round": {next(rounds)}}}'), times=5
    )
    night.run("cancel", "night")
    assert night.control().cancel


def test_whoever_scales_a_job_is_told_what_holds_beside_that_number(
    night: Night, capsys: pytest.CaptureFixture[str]
) -> None:
    night.begin()
    night.run("scale", "night", "0")
    said = capsys.readouterr().err
    assert "within --nnodes or --roles; with less than its minimum the job waits" in said


def test_an_object_that_changes_without_end_is_said(night: Night, capsys: pytest.CaptureFixture[str]) -> None:
    night.begin()
    rounds = iter(range(1000))
    night.while_it_reads("configmaps", lambda: night.write(objects.CONTROL, Control({"": next(rounds)}).text), 1000)
    night.run("suspend", "night", code=2)
    assert "job night could not be changed in 20 attempts: another client changes it" in capsys.readouterr().err


def test_roles_that_two_users_scale_by_an_elastic_job_are_both_scaled(night: Night) -> None:
    double = night.double
    roles = [{"name": "ps", "minReplicas": 1, "maxReplicas": 4}, {"name": "worker", "minReplicas": 1, "maxReplicas": 8}]
    owner = double.objects.create(
        double.place(*PLACE), {"metadata": {"name": "night"}, "spec": {"image": "any", "roles": roles}}
    )
    note = {"metadata": {"annotations": {elastic_job.OWNER: owner["metadata"]["uid"]}}}
    double.objects.patch(double.place("configmaps"), "night", note)
    night.write(objects.TEMPLATES, '{"templates": {"ps": {}, "worker": {}}}')
    night.begin()

    def other() -> None:
        spec = {"roles": [{**roles[0], "replicas": 2}, roles[1]]}
        double.objects.patch(double.place(*PLACE), "night", {"spec": spec})

    night.while_it_reads(PLACE[0], other)
    night.run("scale", "night", "worker=5")
    found = double.all(*PLACE)["night"]["spec"]["roles"]
    assert [each["replicas"] for each in found] == [2, 5]


# -- a master that never begins ---------------------------------------------------------------------------------------


def pull(reason: str, message: str) -> Any:
    state = {"waiting": {"reason": reason, "message": message}}
    return {"phase": "Pending", "containerStatuses": [{"name": "master", "state": state}], "conditions": []}


def ended(code: int, reason: str) -> Any:
    state = {"terminated": {"exitCode": code, "reason": reason, "message": "exec: elastic-run: not found"}}
    return {"phase": "Failed", "containerStatuses": [{"name": "master", "state": state}]}


def words(night: Night) -> str:
    found = unstarted.look(night.api, "night")
    return found.words if found else ""


def test_why_no_master_pod_is_made_is_said_in_the_clusters_words(night: Night) -> None:
    assert words(night) == ""
    night.note("Job", "night", "FailedCreate", 'pods "night-" is forbidden: exceeded quota: few')
    night.note("Job", "other", "FailedCreate", "of another")
    assert "its master's pod cannot be made" in words(night) and "exceeded quota: few" in words(night)
    assert "of another" not in words(night)


def test_why_an_image_cannot_be_pulled_is_said_while_the_kubelet_waits_to_try_again(night: Night) -> None:
    night.master_pod("night-x", pull("ImagePullBackOff", 'Back-off pulling image "train:1"'))
    night.note("Pod", "night-x", "Failed", 'Failed to pull image "train:1": manifest unknown')
    night.note("Pod", "night-x", "Failed", "Error: ImagePullBackOff")
    assert "manifest unknown" in words(night) and "check the image's name" in words(night)
    found = unstarted.look(night.api, "night")
    assert found is not None and found.kind == "stuck"


def test_an_image_without_the_program_ends_the_job_after_three_pods(
    night: Night, capsys: pytest.CaptureFixture[str]
) -> None:
    for number in range(Limits().counted):
        assert not any(unstarted.Patience().ended_by(unstarted.look(night.api, "night"), 0.0) for _ in range(2))
        night.master_pod(f"night-{number}", ended(128, "StartError"))
    night.run("wait", "night", code=1)
    said = capsys.readouterr().err
    assert "3 pods of its master could not run" in said and "elastic-run: not found" in said, said
    assert night.status()["state"] == "failed" and night.status()["exitCode"] == 1
    assert night.double.all("jobs", objects.BATCH)["night"]["spec"]["activeDeadlineSeconds"] == 1


def test_a_master_that_fails_after_one_that_ran_is_no_image_without_the_program(night: Night) -> None:
    night.master_pod("night-0", ended(1, "Error"))
    for number in range(1, 4):
        night.master_pod(f"night-{number}", ended(128, "StartError"))
    found = unstarted.look(night.api, "night")
    assert found is not None and found.kind == "waits"


def test_what_an_init_container_of_its_master_ends_with_is_no_word_of_the_master(night: Night) -> None:
    state = {"terminated": {"exitCode": 2, "reason": "Error"}}
    waits = {"name": "master", "state": {"waiting": {"reason": "PodInitializing"}}}
    failed = {
        "phase": "Failed",
        "initContainerStatuses": [{"name": "mesh", "state": state}],
        "containerStatuses": [waits],
    }
    night.master_pod("night-0", failed)
    found = unstarted.look(night.api, "night")
    assert found is not None and found.kind == "waits"


def test_a_job_that_the_cluster_has_given_up_ends_with_the_last_words_of_its_master(
    night: Night, capsys: pytest.CaptureFixture[str]
) -> None:
    job = night.double.all("jobs", objects.BATCH)["night"]
    assert "backoffLimit" not in job["spec"], "the cluster's own, until a master has begun"
    night.master_pod("night-0", ended(1, "Error"))
    found = unstarted.look(night.api, "night")
    assert found is not None and found.kind == "waits"
    failed = {
        "type": "Failed",
        "status": "True",
        "reason": "BackoffLimitExceeded",
        "message": "it has reached the limit",
    }
    place = night.double.place("jobs", objects.BATCH)
    night.double.objects.patch(place, "night", {"status": {"conditions": [failed]}}, "status")
    night.run("wait", "night", code=1)
    said = capsys.readouterr().err
    assert "it has reached the limit" in said and "exit code 1: exec: elastic-run: not found" in said, said


def give_up(night: Night) -> None:
    """The cluster ends the Job, and says why."""
    why = {"reason": "DeadlineExceeded", "message": "Job was active longer than specified deadline"}
    condition = {"type": "Failed", "status": "True", **why}
    place = night.double.place("jobs", objects.BATCH)
    night.double.objects.patch(place, "night", {"status": {"conditions": [condition]}}, "status")


def test_a_job_whose_masters_the_cluster_has_ended_is_over(night: Night, capsys: pytest.CaptureFixture[str]) -> None:
    night.write(objects.STATUS, '{"state": "running", "round": 3, "workers": 8}')
    give_up(night)
    night.run("status", "night")
    assert "night: failed: the cluster starts no other master: Job was active longer" in capsys.readouterr().out
    night.run("wait", "night", code=1)
    found = night.status()
    assert (found["state"], found["exitCode"], found["round"]) == ("failed", 1, 3), found
    assert "active longer than specified deadline" in found["reason"]


def test_the_operator_ends_a_job_whose_masters_the_cluster_has_ended(night: Night) -> None:
    apply(night, "night")
    uid = night.double.all(*PLACE)["night"]["metadata"]["uid"]
    note = {"metadata": {"annotations": {elastic_job.OWNER: uid}}}
    night.double.objects.patch(night.double.place("configmaps"), "night", note)
    night.begin()
    operator.look(night.api, {}, 0.0)
    assert night.status() == {"state": "running"}
    give_up(night)
    operator.look(night.api, {}, 0.0)
    assert night.status()["exitCode"] == 1 and "starts no other master" in night.status()["reason"]


def killed(at: str) -> Any:
    state = {"terminated": {"exitCode": 137, "reason": "OOMKilled", "finishedAt": at}}
    return {"phase": "Failed", "containerStatuses": [{"name": "master", "state": state}]}


def test_a_job_whose_master_is_down_is_degraded_until_another_runs(
    night: Night, capsys: pytest.CaptureFixture[str]
) -> None:
    apply(night, "night")
    uid = night.double.all(*PLACE)["night"]["metadata"]["uid"]
    note = {"metadata": {"annotations": {elastic_job.OWNER: uid}}}
    night.double.objects.patch(night.double.place("configmaps"), "night", note)
    night.write(objects.STATUS, '{"state": "running", "reason": "all train", "round": 3, "nodes": {"running": 2}}')
    for number in range(4):
        night.master_pod(f"night-{number}", killed(f"2026-11-27T10:0{number}:00Z"))
    operator.look(night.api, {}, 0.0)
    night.run("status", "night")
    told = capsys.readouterr().out
    since = "night: degraded: its master does not run since 2026-11-27T10:03:00Z: its pod night-3: it needed"
    assert told.startswith(since), told
    assert "workers train on; whatever needs a round waits for the next master" in told
    found = said(night, "night")
    assert found["state"] == "Degraded" and "night-3" in found["reason"], found
    stores = {each["type"]: (each["status"], each["reason"]) for each in found["conditions"]}
    assert stores[elastic_job.STORE] == ("Unknown", "NoMaster"), "nobody says how its store is"
    night.double.fault(Fault("list", "pods", status=403))
    night.run("status", "night")
    assert "night: running: all train" in capsys.readouterr().out
    night.master_pod("night-4", {"phase": "Running"})
    operator.look(night.api, {}, 0.0)
    night.run("status", "night")
    assert "night: running: all train" in capsys.readouterr().out and said(night, "night")["state"] == "Running"


def test_nodes_end_with_a_job_that_the_cluster_has_ended(night: Night) -> None:
    """Their store may be the user's own, and go on."""
    night.write(objects.STATUS, '{"state": "running", "round": 3}')
    for name, job in (("night-worker-0", "night"), ("dusk-worker-0", "dusk")):
        body = {
            "metadata": {"name": name, "labels": objects.labels(job, "node")},
            "spec": {"containers": [{"name": "agent"}]},
        }
        night.double.objects.create(night.double.place("pods"), body)
    queued = {"metadata": {"name": "night-ps", "labels": objects.labels("night", indexed_job.NODES)}}
    night.double.objects.create(night.double.place("jobs", objects.BATCH), {**queued, "spec": {"parallelism": 4}})
    give_up(night)
    night.run("wait", "night", code=1)
    assert alive(night) == ["dusk-worker-0"]
    assert night.double.all("jobs", objects.BATCH)["night-ps"]["spec"]["parallelism"] == 0


def test_a_list_tells_why_a_job_has_not_begun(night: Night, capsys: pytest.CaptureFixture[str]) -> None:
    night.master_pod("night-x", pull("ErrImagePull", "not found"))
    night.run("list")
    out, err = capsys.readouterr()
    assert out.splitlines()[1].split()[:2] == ["night", "pending"], out
    assert "job night has not begun: its master's pod night-x: it cannot be started: ErrImagePull: not found" in err
    night.double.fault(Fault("list", "pods", times=0, status=403))  # who may not look at pods has a list all the same
    night.run("list")
    assert capsys.readouterr().out.splitlines()[1].split()[:2] == ["night", "submitted"]


def test_a_job_without_its_job_object_is_told_of_and_keeps_no_other_from_a_look(night: Night) -> None:
    """As while the cluster deletes what belongs to it; the ElasticJob before it in the list cannot be read whole."""
    double = night.double
    spec = {"image": "any", "command": ["train.py"], "minReplicas": 1, "replicas": 1}
    for name in ("dusk", "night"):
        owner = double.objects.create(double.place(*PLACE), {"metadata": {"name": name}, "spec": spec})
        if name == "dusk":
            made = objects.config_map(REQUEST, {}, None, {elastic_job.OWNER: owner["metadata"]["uid"]})
            double.objects.create(double.place("configmaps"), {**made, "metadata": {**made["metadata"], "name": name}})
        note = {"metadata": {"annotations": {elastic_job.OWNER: owner["metadata"]["uid"]}}}
        double.objects.patch(double.place("configmaps"), name, note)
    assert unstarted.look(night.api, "dusk") is None
    night.master_pod("night-x", pull("ErrImagePull", "not found"))

    def fail(asked: Asked) -> None:
        if asked.verb == "list" and asked.place.plural == "pods" and "dusk" in str(asked.query):
            raise Refused(404, "NotFound", "no such job")

    double.before = fail
    operator.look(night.api, {}, 0.0)
    found = double.all(*PLACE)
    assert "ErrImagePull" in found["night"]["status"]["reason"] and "status" not in found["dusk"]


def apply(night: Night, name: str, **more: object) -> None:
    spec = {"image": "any", "command": ["train.py"], **more}
    night.double.objects.create(night.double.place(*PLACE), {"metadata": {"name": name}, "spec": spec})


def said(night: Night, name: str) -> Any:
    return night.double.all(*PLACE)[name].get("status", {})


@pytest.mark.parametrize(
    ("template", "why"),
    [
        ({"spec": {"containers": "agent"}}, "containers of spec of the pod template is 'agent': a list belongs there"),
        ({"spec": {"containers": [None]}}, "an item of containers of spec of the pod template is 'None': a mapping"),
        ({"metadata": {"labels": ["a"]}}, "labels of metadata of the pod template is \"['a']\": a mapping"),
        ({"spec": {"nodeName": "m7"}}, "nodeName of spec of the pod template: give nodeSelector in its place"),
    ],
)
@pytest.mark.parametrize("env", [[], [{"name": "MODE", "value": "fast"}]])
def test_a_template_that_is_no_pod_is_told_and_keeps_no_other_job_from_a_look(
    night: Night, template: object, why: str, env: object
) -> None:
    apply(night, "dusk", template=template, env=env)
    apply(night, "later")
    operator.look(night.api, {}, 0.0)
    assert said(night, "dusk")["state"] == "Invalid" and why in said(night, "dusk")["reason"], said(night, "dusk")
    assert said(night, "later")["state"] == "Pending"


def test_an_error_of_which_nobody_has_thought_keeps_no_other_job_from_a_look(
    night: Night, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(server: Api, job: Any, name: str) -> None:
        if name == "dusk":
            raise KeyError(name)
        reconcile(server, job, name)

    reconcile = operator.reconcile
    monkeypatch.setattr(operator, "reconcile", fail)
    apply(night, "dusk")
    apply(night, "later")
    operator.look(night.api, {}, 0.0)
    assert said(night, "later")["state"] == "Pending" and not said(night, "dusk")


def test_what_another_object_keeps_from_being_made_is_told(night: Night) -> None:
    """A ConfigMap of somebody else stays; a Service may be of an earlier job, and goes."""
    double = night.double
    double.objects.create(double.place("configmaps"), {"metadata": {"name": "dusk"}, "data": {"a": "b"}})
    double.objects.create(double.place("services"), {"metadata": {"name": "later-etcd"}})
    apply(night, "dusk")
    apply(night, "later")
    operator.look(night.api, {}, 0.0)
    assert said(night, "dusk")["state"] == "Invalid" and "a ConfigMap dusk that is not" in said(night, "dusk")["reason"]
    assert "dusk" not in double.all("jobs", objects.BATCH), "no master that could only fail"
    assert said(night, "later")["state"] == "Pending" and "Service later-etcd" in said(night, "later")["reason"]
    double.objects.delete(double.place("services"), "later-etcd", {})
    operator.look(night.api, {}, 0.0)
    operator.look(night.api, {}, 0.0)
    assert "its master has not started yet" in said(night, "later")["reason"], said(night, "later")


@pytest.mark.parametrize("flag", ["--nnodes=1:2", "--nproc_per_node=2", "--image=b"])
def test_a_flag_that_would_count_in_place_of_a_field_is_refused(night: Night, flag: str) -> None:
    apply(night, "twice", flags=["--max-restarts=1", flag], nprocPerNode=1)
    operator.look(night.api, {}, 0.0)
    found, name = said(night, "twice"), flag.partition("=")[0].replace("_", "-")
    assert found["state"] == "Invalid" and f"flags has {name}, which a field says" in found["reason"], found


def test_an_elastic_job_that_would_go_before_its_end_is_read_is_not_made(night: Night) -> None:
    spec = {"image": "any", "command": ["train.py"], elastic_job.TTL: 5}
    night.double.objects.create(night.double.place(*PLACE), {"metadata": {"name": "brief"}, "spec": spec})
    operator.look(night.api, {}, 0.0)
    found = night.double.all(*PLACE)["brief"]["status"]
    assert found["state"] == "Invalid" and "ttlSecondsAfterFinished=5: give a number" in found["reason"], found
    assert "brief" not in night.double.all("jobs", objects.BATCH)


def test_a_job_that_has_not_begun_can_be_cancelled(night: Night) -> None:
    night.master_pod("night-x", pull("ErrImagePull", "not found"))
    night.run("cancel", "night")
    assert night.status()["reason"] == "it was cancelled by its user" and night.status()["exitCode"] == 1
    assert night.double.all("jobs", objects.BATCH)["night"]["spec"]["activeDeadlineSeconds"] == 1


def test_a_master_that_begins_meanwhile_keeps_its_job(night: Night) -> None:
    night.while_it_reads("configmaps", night.begin)
    unstarted.end(night.api, "night", "no such image")
    assert night.status() == {"state": "running"}
    assert "activeDeadlineSeconds" not in night.double.all("jobs", objects.BATCH)["night"]["spec"]


@pytest.mark.parametrize("verb", [("wait",), ("logs", "-f")])
def test_whoever_follows_a_job_that_goes_is_not_kept_waiting(
    night: Night, verb: Sequence[str], capsys: pytest.CaptureFixture[str]
) -> None:
    night.begin()

    def go() -> None:
        night.double.objects.delete(night.double.place("configmaps"), "night", {})

    night.while_it_reads("configmaps", go)
    night.run(*verb, "night", code=2 if verb == ("wait",) else 0)
    assert verb != ("wait",) or "there is no job night" in capsys.readouterr().err


@pytest.mark.parametrize("verb", [("wait",), ("status", "-w"), ("logs", "-f")])
def test_whoever_begins_to_follow_a_job_while_the_server_is_away_waits_for_it(
    night: Night, verb: Sequence[str], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pod_logs, "LOG_PAUSE", 0.1)
    night.write(objects.STATUS, '{"state": "succeeded", "exitCode": 0}')
    night.double.fault(Fault("get", "configmaps", times=2, close=True))
    night.run(*verb, "night")
    said = capsys.readouterr().err
    assert said.count("the API server does not answer") == said.count("the API server answers again") == 1, said


def test_a_job_whose_objects_were_applied_by_hand_goes_as_a_whole(night: Night) -> None:
    double = night.double
    request = objects.Request("dawn", "dawn-1", "any", (), ("train.py",), secret="dawn", store_size=3)
    double.objects.create(double.place("jobs", objects.BATCH), objects.master_job(request))
    double.objects.create(double.place("configmaps"), objects.config_map(request, {}))
    double.objects.create(double.place("secrets"), objects.secret(request, {}, "text"))
    double.objects.create(
        double.place("services"), {"metadata": {"name": "dawn-etcd", "labels": objects.labels("dawn", "store")}}
    )
    double.objects.create(double.place("services"), {"metadata": {"name": "another"}})
    night.run("delete", "dawn")
    assert not double.all("secrets") and list(double.all("services")) == ["another"]
    assert "dawn" not in double.all("jobs", objects.BATCH) and "dawn" not in double.all("configmaps")


def test_what_is_left_of_a_job_whose_job_object_somebody_has_deleted_alone_goes(night: Night) -> None:
    double = night.double
    night.begin()
    labels = objects.labels("night", "store")
    double.objects.create(double.place("services"), {"metadata": {"name": "night-etcd", "labels": labels}})
    night.master_pod("night-x", {"phase": "Running"})
    double.objects.delete(double.place("jobs", objects.BATCH), "night", {"propagationPolicy": "Orphan"})
    night.run("delete", "night")
    assert not double.all("services") and not double.all("configmaps") and not alive(night)
    night.run("delete", "night", code=2)


def alive(night: Night) -> list[str]:
    """Pods that nobody has told to end."""
    return [name for name, each in night.double.all("pods").items() if "deletionTimestamp" not in each["metadata"]]


def test_what_only_has_a_name_like_a_job_s_object_stays_when_the_job_goes(night: Night) -> None:
    double = night.double
    request = objects.Request("dawn", "dawn-1", "any", (), ("train.py",), store_size=3)  # without a secret
    double.objects.create(double.place("jobs", objects.BATCH), objects.master_job(request))
    double.objects.create(double.place("configmaps"), objects.config_map(request, {}))
    double.objects.create(double.place("secrets"), {"metadata": {"name": "dawn"}})
    double.objects.create(double.place("services"), {"metadata": {"name": "dawn-etcd"}})
    night.run("delete", "dawn")
    assert list(double.all("secrets")) == ["dawn"] and list(double.all("services")) == ["dawn-etcd"]
    assert "dawn" not in double.all("jobs", objects.BATCH)
