"""`elastic-job` and `kubectl` as a user types them, in a namespace of its own."""

import itertools
import json
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from elastic_run.master.nodes.kubernetes import elastic_job, objects

from .control_plane import ControlPlane
from .process_kubelet import Kubelet, Rest

DEPLOY = Path(__file__).parents[2] / "deploy" / "kubernetes"

ROLE = DEPLOY / "role.yaml"

TIMES = "--rdzv-conf=last_call_timeout=0,settle=0,scale_up_interval=0"

DEADLINE = 120.0

HELD = """
import os, pathlib, sys, time
print("rank", os.environ["RANK"], "of", os.environ["WORLD_SIZE"], flush=True)
while not pathlib.Path(sys.argv[1]).exists():
    time.sleep(0.05)
"""
"""A script that ends when a file is there."""

_numbers = itertools.count(1)


class Jobs:
    """The jobs of one namespace.

    Args:
        plane: the cluster.
        folder: for scripts.
    """

    def __init__(self, plane: ControlPlane, folder: Path) -> None:
        self.plane = plane
        self.folder = folder
        self.namespace = f"test-{next(_numbers)}"
        self.release_file = folder / "release"
        self._rest = Rest(plane)
        plane.make_namespace(self.namespace)
        plane.kubectl("apply", "-n", self.namespace, "-f", str(ROLE))

    def close(self) -> None:
        """Has its jobs end."""
        self.plane.kubectl("delete", "jobs", "--all", "-n", self.namespace, "--wait=false")

    def run(self, *words: str, code: int = 0) -> str:
        """What `elastic-job` prints; its exit code must be that."""
        done = subprocess.run(self.command(*words), capture_output=True, text=True, timeout=DEADLINE)
        assert done.returncode == code, f"{words}: exit code {done.returncode}: {done.stdout}{done.stderr}{self.logs()}"
        return done.stdout + done.stderr

    def submit(self, name: str, *words: str, script: str = HELD, outside: bool = True) -> None:
        """Submits a job of that script; `outside`: its store is not in the master's pod."""
        file = self.folder / f"{name}.py"
        file.write_text(script)
        store = [f"--rdzv-endpoint=http://{self.plane.store}"] if outside else []
        flags = [f"--name={name}", "--image=any", "--no-wait", "--cpu=1", "--shutdown-timeout=3", TIMES]
        self.run("submit", *flags, *store, *words, "--", str(file), str(self.release_file))

    def release(self) -> None:
        """Lets the scripts end."""
        self.release_file.touch()

    def status(self, name: str) -> Any:
        """What `elastic-job status -o json` prints, read."""
        return json.loads(self.run("status", "-o", "json", name))

    def until(self, name: str, workers: int) -> Any:
        """Waits until the job trains with so many workers; its status."""

        def there() -> bool:
            nonlocal found
            found = objects.status_of(self.find("configmaps", name))
            # A command for each look would take the processors from the job.
            return trains() and bool(found := self.status(name)) and trains()

        def trains() -> bool:
            return (found.get("state"), found.get("workers")) == ("running", workers)

        found: Any = {}
        self.wait(there, lambda: f"{workers} workers of {name}: {found}")
        return found

    def wait(self, happened: Any, what: Any, seconds: float = DEADLINE) -> None:
        """Waits for it; fails with `what()` and all logs."""
        end = time.monotonic() + seconds
        while not happened():
            assert time.monotonic() < end, f"{what()}: not within {seconds:g} s\n{self.logs()}"
            time.sleep(0.2)

    def pods(self, component: str = "node", job: str = "") -> Mapping[str, Any]:
        """Those of a kind (and of a job), by name, without those that are about to go."""
        which = f"elastic-run.dev/component={component}" + (f",elastic-run.dev/job={job}" if job else "")
        found = self.find("pods", query=f"?labelSelector={which}")["items"]
        return {each["metadata"]["name"]: each for each in found if "deletionTimestamp" not in each["metadata"]}

    def find(self, plural: str, name: str = "", group: str = "", query: str = "") -> Any:
        """An object of the namespace, or all of a kind. Raises Refused where it is not there."""
        root = f"/apis/{group}" if group else "/api/v1"
        return self._rest.ask("GET", f"{root}/namespaces/{self.namespace}/{plural}/{name}".rstrip("/") + query)

    def machine(self, name: str = "", cpu: int = 4) -> Kubelet:
        """A machine for the pods of this namespace."""
        return Kubelet(self.plane, name or self.namespace, cpu, namespace=self.namespace)

    def running(self, component: str = "node", job: str = "") -> Mapping[str, Any]:
        """Those that run."""
        return {name: each for name, each in self.pods(component, job).items() if each["status"]["phase"] == "Running"}

    def logs(self) -> str:
        """Of all pods that there are."""
        texts: list[str] = []
        for component in ("master", "node", "store"):
            for name in self.pods(component):
                done = subprocess.run(
                    ["kubectl", f"--kubeconfig={self.plane.kubeconfig}", "-n", self.namespace, "logs", name],
                    capture_output=True,
                    text=True,
                    timeout=30,
                )
                texts.append(f"---- {name} ----\n{done.stdout}{done.stderr}")
        return "\n".join(texts)

    def evicts(self, pod: str) -> bool:
        """Asks for a pod to go, as a drain of its machine does; whether it goes."""
        group = "policy/v1" if self.plane.version >= (1, 22) else "policy/v1beta1"
        body = {"apiVersion": group, "kind": "Eviction", "metadata": {"name": pod}}
        where = f"/api/v1/namespaces/{self.namespace}/pods/{pod}/eviction"
        words = ["kubectl", f"--kubeconfig={self.plane.kubeconfig}", "create", "--raw", where, "-f", "-"]
        done = subprocess.run(words, input=json.dumps(body), capture_output=True, text=True, timeout=DEADLINE)
        assert not done.returncode or "disruption budget" in done.stderr, done.stderr
        return not done.returncode

    def job(self, name: str) -> Any:
        """The Job's own object."""
        return self.find("jobs", name, objects.BATCH)

    def command(self, *words: str) -> list[str]:
        """`elastic-job` with these words."""
        verb, *rest = words
        program = Path(sys.executable).with_name("elastic-job")
        return [str(program), verb, f"--kubeconfig={self.plane.kubeconfig}", "-n", self.namespace, *rest]


class ElasticJobs(Jobs):
    """Jobs that are applied, and changed, with kubectl."""

    def __init__(self, plane: ControlPlane, folder: Path) -> None:
        super().__init__(plane, folder)
        plane.kubectl("apply", "-f", str(DEPLOY / "crd.yaml"))
        plane.kubectl("wait", "--for=condition=Established", "crd/elasticjobs.elastic-run.dev", "--timeout=150s")
        self.kubectl("apply", "-f", str(DEPLOY / "operator.yaml"))

    def close(self) -> None:
        self.kubectl("delete", "elasticjobs", "--all", "--wait=false")

    def kubectl(self, *words: str, fails: bool = False) -> str:
        return self.plane.kubectl(*words, "-n", self.namespace, fails=fails)

    def spec(self, **more: object) -> dict[str, Any]:
        script = self.folder / "held.py"
        script.write_text(HELD)
        flags = [TIMES, "--shutdown-timeout=3"]
        spec = {"image": "any", "command": [str(script), str(self.release_file)], "cpu": "1", "flags": flags}
        return spec | {"rdzvEndpoint": f"http://{self.plane.store}"} | more

    def apply(self, name: str, spec: object) -> None:
        kind = {"apiVersion": "elastic-run.dev/v1", "kind": "ElasticJob"}
        self.plane.apply({**kind, "metadata": {"name": name, "namespace": self.namespace}, "spec": spec})

    def get(self, name: str) -> Any:
        return self.find("elasticjobs", name, elastic_job.API)

    def said(self, name: str) -> Any:
        return self.get(name).get("status", {})

    def logs(self) -> str:
        """Of the operator as well."""
        (pod, *_) = [each["metadata"]["name"] for each in self.plane.get(*self.operator)["items"]] or [""]
        return super().logs() + (f"\n---- operator ----\n{self.kubectl('logs', pod)}" if pod else "")

    @property
    def operator(self) -> tuple[str, ...]:
        """What `kubectl get` shows of its pods."""
        return ("pods", "-n", self.namespace, "-l", "app=elastic-run-operator")

    def tells(self, name: str, words: str) -> None:
        """Waits for an event that says so, which the operator writes after the status."""

        def told() -> str:
            return self.kubectl("describe", "elasticjob", name).partition("Events:")[2]

        self.wait(lambda: words in told(), lambda: f"an event with {words!r}: {told()}")

    def trains(self, name: str, workers: int) -> Any:
        self.wait(
            lambda: (self.said(name).get("state"), self.said(name).get("workers")) == ("Running", workers),
            lambda: f"{workers} workers: {self.said(name)}",
        )
        return self.get(name)
