"""Each job's secret: its master, nodes and store prove with it that they belong together, and nobody else reads it."""

import asyncio
import base64
import contextlib
import json
import subprocess
from pathlib import Path

import psutil
import pytest

from elastic_run.rendezvous.identity.contexts import Identity
from elastic_run.rendezvous.identity.secret import parse_secret
from elastic_run.rendezvous.store.embedded import etcd_admin
from elastic_run.rendezvous.store.endpoint import Endpoint

from .jobs import HELD, Jobs
from .process_kubelet import Kubelet

pytestmark = pytest.mark.xdist_group("kubernetes")

READ_ALL: dict[str, object] = {"key": "AA==", "range_end": "AA=="}
"""Every key of a store, as etcd's gateway is asked for it."""

TELLS = HELD.replace("import os", "import os; print('env', dict(os.environ), flush=True)\nimport os", 1)
"""A script that prints its environment, and ends when a file is there."""


def test_a_jobs_secret_is_in_its_secret_alone_and_opens_its_store(jobs: Jobs, machine: Kubelet) -> None:
    jobs.submit("kept", "--nnodes=2", "--store-replicas=1", script=TELLS, outside=False)
    jobs.until("kept", 2)
    held = jobs.plane.get("secret", "kept", "-n", jobs.namespace)
    (owner,) = held["metadata"]["ownerReferences"]
    assert (owner["kind"], owner["uid"]) == ("Job", jobs.job("kept")["metadata"]["uid"])
    text = base64.b64decode(held["data"]["secret"]).decode()
    # Without it, the store tells nobody anything; with it, it does.
    (store,) = jobs.running("store").values()
    endpoint = Endpoint(store["status"]["podIP"], 2379)
    with pytest.raises(etcd_admin.NotAnswered):
        asyncio.run(etcd_admin.call(endpoint, "/v3/kv/range", READ_ALL, 10.0, None))
    tls = Identity(parse_secret(text, "the Secret")).store
    assert asyncio.run(etcd_admin.call(endpoint, "/v3/kv/range", READ_ALL, 10.0, tls)).get("kvs")
    # Nor is it in any other object, in an event, in a line of a log, or in what other processes see of the pods'.
    kinds = "jobs,pods,configmaps,statefulsets,services,events,replicasets"
    assert text not in jobs.plane.kubectl("get", kinds, "-n", jobs.namespace, "-o", "json")
    logs = jobs.logs()
    assert "'RANK'" in logs and text not in logs
    seen = 0
    for pod in (*jobs.running(), *jobs.running("master"), *jobs.running("store")):
        for each in family(machine.pid(pod)):
            seen += 1
            for file in ("environ", "cmdline"):
                with contextlib.suppress(ProcessLookupError, FileNotFoundError):  # it has just ended
                    assert text.encode() not in (Path("/proc") / str(each) / file).read_bytes(), (pod, each, file)
    assert seen >= 6
    jobs.release()
    jobs.run("wait", "kept")
    jobs.run("delete", "kept")
    jobs.wait(lambda: not own_secrets(jobs), lambda: f"the Secret to go: {own_secrets(jobs)}")


def family(pid: int) -> list[int]:
    """A container's first process, and those that it has started."""
    return [pid, *(each.pid for each in psutil.Process(pid).children(recursive=True))]


def own_secrets(jobs: Jobs) -> list[str]:
    found = jobs.plane.get("secrets", "-n", jobs.namespace, "-l", "elastic-run.dev/component=secret")["items"]
    return [each["metadata"]["name"] for each in found]


def test_what_a_dry_run_prints_is_a_job_when_it_is_applied(jobs: Jobs, machine: Kubelet) -> None:
    script = jobs.folder / "applied.py"
    script.write_text(HELD)
    program = jobs.command("submit")[0]
    words = [program, "submit", "--name=applied", "--image=any", "--cpu=1", "--nnodes=1:2", "--shutdown-timeout=3"]
    words += ["--store-replicas=1", "--dry-run=client", "-o", "yaml", "--", str(script), str(jobs.release_file)]
    done = subprocess.run(words, capture_output=True, text=True, timeout=60, check=True)
    # The version of budgets is that of newer ones.
    version = ("policy/v1\n", "policy/v1beta1\n" if jobs.plane.version < (1, 21) else "policy/v1\n")
    text = done.stdout.replace(*version)
    jobs.plane.kubectl("apply", "-n", jobs.namespace, "-f", "-", data=text)
    jobs.until("applied", 2)
    jobs.run("scale", "applied", "1")
    jobs.until("applied", 1)
    # Applied again, as by somebody who keeps it in a repository: nothing is taken back.
    jobs.plane.kubectl("apply", "-n", jobs.namespace, "-f", "-", data=text)
    assert jobs.status("applied")["workers"] == 1
    # Printed and applied again, as by somebody who types the line twice: the store and the nodes keep their secret.
    another = subprocess.run(words, capture_output=True, text=True, timeout=60, check=True).stdout
    said = jobs.plane.kubectl("apply", "-n", jobs.namespace, "-f", "-", data=another.replace(*version), fails=True)
    assert "immutable" in said, said
    jobs.run("scale", "applied", "2")
    jobs.until("applied", 2)
    jobs.run("scale", "applied", "1")
    jobs.until("applied", 1)
    data = jobs.plane.get("configmap", "applied", "-n", jobs.namespace)
    assert json.loads(data["data"]["control.json"])["scale"] == {"": 1}
    assert [each["kind"] for each in data["metadata"]["ownerReferences"]] == ["Job"]
    jobs.release()
    jobs.run("wait", "applied")
    jobs.run("delete", "applied")
    left = "jobs,configmaps,statefulsets,services,poddisruptionbudgets,secrets"
    jobs.wait(
        lambda: not jobs.plane.get(left, "-n", jobs.namespace, "-l", "elastic-run.dev/job=applied")["items"],
        lambda: "all of it to go",
    )
