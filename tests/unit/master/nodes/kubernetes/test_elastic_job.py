"""An ElasticJob is what `elastic-job submit` would be, and is told how its job is."""

import json
from datetime import datetime
from typing import Any

import pytest

from elastic_run.launcher.cluster.request import submitted
from elastic_run.launcher.errors import UsageError
from elastic_run.master.nodes.kubernetes import elastic_job
from elastic_run.master.nodes.kubernetes.objects import Control

EARLY, LATE = "2026-01-01T00:00:00Z", "2026-01-01T00:01:00Z"

ROLES = [{"name": "chief", "minReplicas": 1}, {"name": "ps", "minReplicas": 1, "maxReplicas": 2, "replicas": 1}]


def spec(**more: object) -> dict[str, Any]:
    return {"image": "train:1", "command": ["train.py", "--epochs=3"], **more}


def test_fields_become_the_flags_of_submit() -> None:
    given = spec(minReplicas=2, maxReplicas=8, cpu=4, memory="8Gi", flags=["--max-restarts=5"], gpus=0)
    flags = ["--name=digits", "--cpu=4", "--memory=8Gi", "--image=train:1", "--nnodes=2:8", "--max-restarts=5"]
    assert elastic_job.words("digits", given) == [*flags, "--", "train.py", "--epochs=3"]


@pytest.mark.parametrize(("field", "size"), [({}, 3), ({"storeReplicas": 1}, 1), ({"storeReplicas": 0}, 0)])
def test_the_store_is_that_of_submit(field: dict[str, int], size: int) -> None:
    assert submitted(elastic_job.words("digits", spec(**field)), {}).store_size == size


def test_roles_become_those_of_the_command_line() -> None:
    roles = [
        *ROLES,
        {"name": "eval", "minReplicas": 0, "maxReplicas": 1, "options": "counts=no", "command": ["e v.py"]},
    ]
    made = elastic_job.words("parts", spec(roles=roles))
    assert "--roles=chief:1:1,ps:1:2,eval:0:1" in made
    assert "--role-options=eval:counts=no" in made and "--role-command=eval:'e v.py'" in made
    assert submitted(made, {}).roles == ("chief", "ps", "eval")


def test_what_submit_refuses_is_refused() -> None:
    with pytest.raises(UsageError, match="3:2"):
        submitted(elastic_job.words("wrong", spec(minReplicas=3, maxReplicas=2)), {})
    with pytest.raises(ValueError, match="cannot be a job's name"):
        submitted(elastic_job.words("no.dots", spec()), {})


def test_what_is_changed_too_late_is_told_by_its_fields() -> None:
    first = spec(minReplicas=1, roles=ROLES)
    kept = json.dumps(first)
    scaled = [ROLES[0], {**ROLES[1], "replicas": 2}]
    assert elastic_job.ignored({**first, "suspend": True, "roles": scaled}, kept) == []
    told = ["replicas (each role has its own)"]
    assert elastic_job.ignored({**first, "replicas": 1, "roles": scaled}, kept) == told
    wider = [ROLES[0], {**ROLES[1], "maxReplicas": 3}]
    changed = {**first, "image": "train:2", "roles": wider, "cpu": 2}
    assert elastic_job.ignored(changed, kept) == ["cpu", "image", "roles"]
    assert elastic_job.ignored(changed, "") == [], "made by an older operator"
    found = elastic_job.status("digits", {}, {}, 1, EARLY, ["image"])["conditions"][-1]
    assert (found["type"], found["status"]) == ("SpecApplied", "False")
    assert found["message"].startswith("image changed after the job was made")


def test_variables_go_beside_those_of_the_template_into_the_agents_container() -> None:
    containers = [{"name": "log"}, {"name": "agent", "env": [{"name": "A", "value": "1"}, {"name": "B", "value": "2"}]}]
    template = {
        "metadata": {"labels": {"team": "a"}},
        "spec": {"containers": containers, "nodeSelector": {"zone": "x"}},
    }
    made = elastic_job.template(spec(template=template, env=[{"name": "B", "value": "3"}]))
    assert made["metadata"] == template["metadata"] and made["spec"]["nodeSelector"] == {"zone": "x"}
    assert made["spec"]["containers"][0] == {"name": "log"}
    assert made["spec"]["containers"][1]["env"] == [{"name": "A", "value": "1"}, {"name": "B", "value": "3"}]
    assert containers[1]["env"][1] == {"name": "B", "value": "2"}, "the template itself is as it was"


@pytest.mark.parametrize(
    ("given", "scale"), [(spec(replicas=3), {"": 3}), (spec(), {}), (spec(roles=ROLES, replicas=9), {"ps": 1})]
)
def test_what_is_wanted_is_read_and_written_back(given: dict[str, Any], scale: dict[str, int]) -> None:
    wanted = elastic_job.control(given | {"suspend": True}, Control(cancel=True))
    assert wanted == Control(scale, suspend=True, cancel=True)
    again = given | elastic_job.spec_of(wanted.changed(suspend=False), given)
    assert elastic_job.control(again, Control()) == Control(scale)


def told(state: str, before: dict[str, Any], now: str, **more: object) -> dict[str, Any]:
    found = {"state": state, "reason": "because", "nodes": {"running": 1}, **more}
    return dict(elastic_job.status("digits", found, before, 7, now))


def since(status: dict[str, Any]) -> dict[str, tuple[str, str]]:
    return {each["type"]: (each["status"], each["lastTransitionTime"]) for each in status["conditions"]}


def test_a_condition_keeps_the_time_of_its_change() -> None:
    first = told("running", {}, EARLY)
    assert since(first)["Running"] == ("True", EARLY)
    again = told("running", first, LATE, workers=3)
    assert since(again) == since(first) and again["workers"] == 3
    over = told("succeeded", again, LATE, exitCode=0)
    assert since(over)["Running"] == ("False", LATE) and since(over)["Succeeded"] == ("True", LATE)
    assert since(over)["Failed"] == ("False", EARLY)


@pytest.mark.parametrize("state", ["failed", "timeout", "repeated"])
def test_each_way_to_fail_is_the_condition_failed(state: str) -> None:
    made = told(state, {}, EARLY, exitCode=1)
    assert made["state"] == "Failed" and since(made)["Failed"][0] == "True"
    assert {each["reason"] for each in made["conditions"][:4]} == {state.capitalize()}


def test_a_store_without_a_quorum_is_a_condition_of_its_own_with_its_time() -> None:
    first = told("running", {}, EARLY)
    assert since(first)["StoreAvailable"] == ("True", EARLY)
    made = told("degraded", first, LATE, reason="2 of 3 members are away")
    assert (made["state"], since(made)["Running"]) == ("Degraded", ("True", EARLY)), "the nodes train on"
    assert since(made)["StoreAvailable"] == ("False", LATE)
    assert {each["message"] for each in made["conditions"][:5]} == {"2 of 3 members are away"}
    none = told("degraded", made, LATE, reason="2 of 3 members are away", nodes={})
    assert (none["state"], none["reason"]) == ("Pending", "2 of 3 members are away")


def test_without_nodes_nothing_runs_and_there_are_no_workers() -> None:
    made = told("running", {}, EARLY, workers=3, nodes={"pending": 1})
    assert (made["state"], made["workers"], since(made)["Running"][0]) == ("Pending", 0, "False")
    assert told("succeeded", {}, EARLY, workers=3, nodes={})["workers"] == 0


def test_fewer_replicas_than_the_job_needs_are_said() -> None:
    few = elastic_job.too_few({"minReplicas": 2, "replicas": 1})
    assert few == "replicas is 1, and the job trains with 2 (minReplicas) or more"
    assert elastic_job.status("digits", {"reason": "because"}, {}, 1, EARLY, (), few)["reason"] == f"{few}; because"
    assert elastic_job.too_few({"minReplicas": 2, "replicas": 2}) == elastic_job.too_few({}) == ""
    roles = [{"name": "chief"}, {"name": "worker", "minReplicas": 3, "replicas": 0}]
    assert elastic_job.too_few({"roles": roles}).startswith("replicas of role worker is 0")


def test_progress_of_all_data_is_told_and_the_longest_time_left() -> None:
    data = [{"name": "a", "shards": 9, "done": 4, "secondsLeft": 60}, {"name": "b", "shards": 2, "done": 2}]
    made = told("running", {}, EARLY, datasets=data, nodes={"running": 2, "pending": 1})
    assert (made["progress"], made["secondsLeft"], made["replicas"], made["pending"]) == ("4/9, 2/2", 60, 2, 1)


@pytest.mark.parametrize(
    ("ttl", "state", "at", "gone"),
    [
        (60, "Succeeded", LATE, True),
        (60, "Failed", LATE, True),
        (61, "Succeeded", LATE, False),
        (0, "Succeeded", EARLY, True),
        (None, "Succeeded", LATE, False),
        (0, "Running", LATE, False),
    ],
)
def test_it_goes_when_its_time_after_the_end_has_passed(ttl: int | None, state: str, at: str, gone: bool) -> None:
    over = {} if state == "Running" else {"exitCode": 0}
    status = {"conditions": elastic_job.conditions(state, state, "so", {}, EARLY), **over}
    job = {"spec": spec() if ttl is None else spec(ttlSecondsAfterFinished=ttl), "status": status}
    assert elastic_job.expired(job, datetime.fromisoformat(at)) is gone


def test_how_long_it_stays_after_its_end_can_be_changed_and_is_no_matter_of_its_job() -> None:
    given = spec(ttlSecondsAfterFinished=60)
    assert elastic_job.ignored({**given, "ttlSecondsAfterFinished": 5}, json.dumps(given)) == []
    assert submitted(elastic_job.words("digits", given), {}).ttl is None
