"""`elastic-job` as a user types it, in a namespace of its own."""

import itertools
import json
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from .control_plane import ControlPlane

ROLE = Path(__file__).parents[2] / "deploy" / "kubernetes" / "role.yaml"

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
        plane.kubectl("create", "namespace", self.namespace)
        plane.kubectl("apply", "-n", self.namespace, "-f", str(ROLE))

    def run(self, *words: str, code: int = 0) -> str:
        """What `elastic-job` prints; its exit code must be that."""
        done = subprocess.run(self._command(*words), capture_output=True, text=True, timeout=DEADLINE)
        assert done.returncode == code, f"{words}: exit code {done.returncode}: {done.stdout}{done.stderr}{self.logs()}"
        return done.stdout + done.stderr

    def submit(self, name: str, *words: str, script: str = HELD, outside: bool = True) -> None:
        """Submits a job of that script; `outside`: its store is not in the master's pod."""
        file = self.folder / f"{name}.py"
        file.write_text(script)
        store = [f"--rdzv-endpoint=http://{self.plane.store}"] if outside else []
        times = "--rdzv-conf=last_call_timeout=0,settle=0,scale_up_interval=0"
        flags = [f"--name={name}", "--image=any", "--no-wait", "--cpu=1", "--shutdown-timeout=3", times]
        self.run("submit", *flags, *store, *words, "--", str(file), str(self.release_file))

    def release(self) -> None:
        """Lets the scripts end."""
        self.release_file.touch()

    def status(self, name: str) -> Any:
        """What `elastic-job status -o json` prints, read."""
        return json.loads(self.run("status", "-o", "json", name))

    def until(self, name: str, workers: int, **more: object) -> Any:
        """Waits until the job trains with so many workers; its status."""

        def there() -> bool:
            nonlocal found
            found = self.status(name)
            running = found.get("state") == "running" and found.get("workers") == workers
            return running and all(found.get(key) == value for key, value in more.items())

        found: Any = {}
        self.wait(there, lambda: f"{workers} workers of {name}: {found}")
        return found

    def wait(self, happened: Any, what: Any, seconds: float = DEADLINE) -> None:
        """Waits for it; fails with `what()` and all logs."""
        end = time.monotonic() + seconds
        while not happened():
            assert time.monotonic() < end, f"{what()}: not within {seconds:g} s\n{self.logs()}"
            time.sleep(0.2)

    def pods(self, component: str = "node") -> Mapping[str, Any]:
        """Those of a kind, by name, without those that are about to go."""
        found = self.plane.get("pods", "-n", self.namespace, "-l", f"elastic-run.dev/component={component}")["items"]
        return {each["metadata"]["name"]: each for each in found if "deletionTimestamp" not in each["metadata"]}

    def running(self, component: str = "node") -> Mapping[str, Any]:
        """Those that run."""
        return {name: each for name, each in self.pods(component).items() if each["status"]["phase"] == "Running"}

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
        return self.plane.get("job", name, "-n", self.namespace)

    def _command(self, *words: str) -> list[str]:
        verb, *rest = words
        program = Path(sys.executable).with_name("elastic-job")
        return [str(program), verb, f"--kubeconfig={self.plane.kubeconfig}", "-n", self.namespace, *rest]
