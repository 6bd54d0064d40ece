"""A real Kubernetes control plane on this machine: etcd, API server, controller manager and scheduler.

    with ControlPlane(folder) as plane:
        plane.kubectl("get", "pods")

It has no machines; `process_kubelet.py` makes some. `tests/build_kubernetes.sh` builds the programs; those of another
version are used where ELASTIC_RUN_TEST_KUBERNETES names their folder. It listens on loopback, and whoever has the token
of `plane.kubeconfig` may do everything.
"""

import json
import os
import re
import secrets
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

from kubernetes import client, config

from ..integration.conftest import etcd_binary, free_ports

DEADLINE = 120.0
COMMAND_SECONDS = 180.0
PROGRAMS = ("kube-apiserver", "kube-controller-manager", "kube-scheduler")

FOLDER_VARIABLE = "ELASTIC_RUN_TEST_KUBERNETES"

MACHINES_OF = "elastic-run.dev/machines-of"
"""Label of a machine: the namespace whose pods it runs."""

RESTRICTED = {"pod-security.kubernetes.io/enforce": "restricted"}
"""Labels of a namespace that refuses other pods, from Kubernetes 1.23 on."""

NEEDS = "these tests need a Kubernetes control plane: tests/build_kubernetes.sh builds one (make test does)"


class Unavailable(Exception):
    """This machine has no control plane; the message says why."""


def programs() -> Path:
    """The folder that the environment names, or of the newest build. Raises Unavailable."""
    if named := os.environ.get(FOLDER_VARIABLE):
        if absent := [name for name in PROGRAMS if not (Path(named) / name).exists()]:
            raise Unavailable(f"{FOLDER_VARIABLE}={named}: there is no {', '.join(absent)}")
        return Path(named)
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "elastic-run-tests"
    found = [each for each in cache.glob("kubernetes-*") if all((each / name).exists() for name in PROGRAMS)]
    if not found:
        raise Unavailable(NEEDS)
    return max(found, key=lambda each: each.stat().st_mtime)


def version_of(where: Path) -> tuple[int, int]:
    """Which Kubernetes it is, such as (1, 20)."""
    done = subprocess.run([where / "kube-apiserver", "--version"], check=True, capture_output=True, text=True)
    found = re.search(r"v([0-9]+)\.([0-9]+)", done.stdout)
    assert found, done.stdout
    return int(found[1]), int(found[2])


class ControlPlane:
    """Starts with the context, and ends with it.

    Args:
        folder: for its files and logs.
        taken_for_lost: seconds of silence after which a machine is not ready any more.

    Attributes:
        version: such as (1, 20).
        store: the address of its etcd, in which there is room for a job's keys as well.
    """

    def __init__(self, folder: Path, taken_for_lost: int = 8) -> None:
        self.folder = folder
        self.taken_for_lost = taken_for_lost
        self.kubeconfig = folder / "kubeconfig"
        self.token = secrets.token_hex(16)
        self._processes: dict[str, subprocess.Popen[bytes]] = {}
        self._commands: dict[str, list[str]] = {}

    def __enter__(self) -> "ControlPlane":
        try:
            self._begin()
        except BaseException:
            self._end()  # nobody else would, of what has begun
            raise
        return self

    def _begin(self) -> None:
        where = programs()
        self.version = version_of(where)
        # Ports without TLS, which versions before 1.24 open otherwise and later ones do not know.
        no_plain_api, no_plain_port = (["--insecure-port=0"], ["--port=0"]) if self.version < (1, 24) else ([], [])
        # The time of a Job after its end, which versions from 1.21 on keep by default.
        later = ["--feature-gates=TTLAfterFinished=true"] if self.version < (1, 21) else []
        folder = self.folder
        folder.mkdir(parents=True, exist_ok=True)
        etcd, peer, self.port, manager, scheduler = free_ports(5)
        self.url = f"https://127.0.0.1:{self.port}"
        (folder / "tokens.csv").write_text(f"{self.token},admin,admin,system:masters\n")
        key = folder / "service-accounts.key"
        subprocess.run(["openssl", "genrsa", "-out", key, "2048"], check=True, capture_output=True)
        self._write_kubeconfig()
        self.store = f"127.0.0.1:{etcd}"
        store = f"http://{self.store}"
        members = [
            f"--listen-peer-urls=http://127.0.0.1:{peer}",
            f"--initial-advertise-peer-urls=http://127.0.0.1:{peer}",
        ]
        self._start(
            "etcd",
            [etcd_binary(), f"--data-dir={folder / 'etcd'}", f"--listen-client-urls={store}"]
            + [f"--advertise-client-urls={store}", f"--initial-cluster=default=http://127.0.0.1:{peer}", *members]
            + ["--unsafe-no-fsync"] * self._may_not_fsync(),
        )
        self._start(
            "kube-apiserver",
            [
                str(where / "kube-apiserver"),
                f"--etcd-servers={store}",
                "--bind-address=127.0.0.1",
                *no_plain_api,
                *later,
            ]
            + [f"--secure-port={self.port}", f"--cert-dir={folder / 'certificates'}", "--authorization-mode=RBAC"]
            + [f"--token-auth-file={folder / 'tokens.csv'}", "--service-cluster-ip-range=10.96.0.0/16"]
            + ["--service-account-issuer=https://kubernetes.default.svc", f"--service-account-key-file={key}"]
            + [f"--service-account-signing-key-file={key}", "--allow-privileged=true"]
            + ["--enable-admission-plugins=Priority,PodNodeSelector"]
            + ["--kubelet-preferred-address-types=InternalIP"]
            + [f"--default-{each}-toleration-seconds=2" for each in ("not-ready", "unreachable")],
        )
        self.until(lambda: self.answers(), "the API server")
        common = [f"--kubeconfig={self.kubeconfig}", *no_plain_port, "--leader-elect=false"]
        ca = folder / "certificates" / "apiserver.crt"
        self._start(
            "kube-controller-manager",
            [
                str(where / "kube-controller-manager"),
                *common,
                *later,
                f"--secure-port={manager}",
                "--bind-address=127.0.0.1",
            ]
            + [f"--service-account-private-key-file={key}", f"--root-ca-file={ca}", f"--cert-dir={folder / 'manager'}"]
            + ["--use-service-account-credentials", f"--node-monitor-grace-period={self.taken_for_lost}s"]
            + ["--node-monitor-period=1s", "--concurrent-gc-syncs=4"]
            # A small cluster that loses much of itself evicts nobody, otherwise.
            + [f"--{which}node-eviction-rate=10" for which in ("", "secondary-")]
            + ["--large-cluster-size-threshold=0"],
        )
        served = [f"--secure-port={scheduler}", "--bind-address=127.0.0.1", f"--cert-dir={folder / 'scheduler'}"]
        self._start("kube-scheduler", [str(where / "kube-scheduler"), *common, *served])
        self.api = client.ApiClient(self._configuration())
        self.core = client.CoreV1Api(self.api)
        self.until(self._has_default_account, "the namespace's service account")

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._end()

    def _end(self) -> None:
        for process in reversed(self._processes.values()):
            process.send_signal(signal.SIGCONT)
            process.kill()
            process.wait()

    # -- faults ---------------------------------------------------------------------------------------------------

    def kill(self, program: str) -> None:
        """SIGKILL; its state stays in etcd."""
        self._processes[program].kill()
        self._processes[program].wait()

    def start(self, program: str) -> None:
        """Starts it again, as it was."""
        self._start(program, self._commands[program])
        if program == "kube-apiserver":
            self.until(self.answers, "the API server")

    def freeze(self, program: str) -> None:
        """SIGSTOP: its connections stay open, and nothing answers."""
        self._processes[program].send_signal(signal.SIGSTOP)

    def thaw(self, program: str) -> None:
        """It goes on."""
        self._processes[program].send_signal(signal.SIGCONT)

    # -- questions ------------------------------------------------------------------------------------------------

    def kubectl(self, *words: str, data: str | None = None, fails: bool = False) -> str:
        """What `kubectl` prints; it must succeed, or `fails`."""
        done = subprocess.run(
            ["kubectl", f"--kubeconfig={self.kubeconfig}", *words],
            input=data,
            capture_output=True,
            text=True,
            timeout=COMMAND_SECONDS,
        )
        assert (done.returncode != 0) == fails, f"kubectl {' '.join(words)}: {done.stdout}{done.stderr}"
        return done.stdout + done.stderr if fails else done.stdout

    def get(self, *words: str) -> Any:
        """What `kubectl get ... -o json` prints, read."""
        return json.loads(self.kubectl("get", *words, "-o", "json"))

    def apply(self, *objects: object) -> None:
        """`kubectl apply` of these objects."""
        self.kubectl("apply", "-f", "-", data="\n---\n".join(json.dumps(each) for each in objects))

    def make_namespace(self, name: str) -> None:
        """Pods of that namespace are restricted, and run on its own machines alone, which have its name as a label."""
        annotations = {"scheduler.alpha.kubernetes.io/node-selector": f"{MACHINES_OF}={name}"}
        metadata = {"name": name, "annotations": annotations, "labels": RESTRICTED}
        self.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": metadata})

    def answers(self) -> bool:
        """Whether the API server is ready."""
        for name, process in self._processes.items():
            if process.poll() is not None and name in ("etcd", "kube-apiserver"):
                log = (self.folder / f"{name}.log").read_text(errors="replace")[-3000:]
                raise AssertionError(f"{name} ended:\n{log}")
        done = subprocess.run(
            ["curl", "-sk", "-m", "2", "-H", f"Authorization: Bearer {self.token}", f"{self.url}/readyz"],
            capture_output=True,
            text=True,
        )
        return done.stdout == "ok"

    def until(self, happened: Callable[[], object], what: str, seconds: float = DEADLINE) -> None:
        """Waits for it; fails with `what` after so many seconds."""
        end = time.monotonic() + seconds
        while not happened():
            assert time.monotonic() < end, f"{what}: not within {seconds:g} s"
            time.sleep(0.05)

    # -- inside ---------------------------------------------------------------------------------------------------

    def _start(self, name: str, command: Sequence[str]) -> None:
        self._commands[name] = list(command)
        with (self.folder / f"{name}.log").open("ab") as log:
            self._processes[name] = subprocess.Popen(command, stdout=log, stderr=log, stdin=subprocess.DEVNULL)

    def _may_not_fsync(self) -> bool:
        done = subprocess.run([etcd_binary(), "--help"], capture_output=True, text=True)
        return "unsafe-no-fsync" in done.stdout + done.stderr

    def _write_kubeconfig(self) -> None:
        trust = {"certificate-authority": str(self.folder / "certificates" / "apiserver.crt")}
        document = {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": "test", "cluster": {"server": self.url, **trust}}],
            "users": [{"name": "admin", "user": {"token": self.token}}],
            "contexts": [{"name": "test", "context": {"cluster": "test", "user": "admin", "namespace": "default"}}],
            "current-context": "test",
        }
        self.kubeconfig.write_text(json.dumps(document))

    def _configuration(self) -> client.Configuration:
        settings = client.Configuration()
        config.load_kube_config(str(self.kubeconfig), client_configuration=settings)
        return settings

    def _has_default_account(self) -> bool:
        found = json.loads(self.kubectl("get", "serviceaccounts", "-o", "json"))
        # Before 1.24 a pod's token is a Secret of its account, and no pod is made until that is there.
        return any(
            each["metadata"]["name"] == "default" and (self.version >= (1, 24) or each.get("secrets"))
            for each in found["items"]
        )


def missing() -> str:
    """Why there can be none here; empty where there can."""
    try:
        programs()
    except Unavailable as error:
        return str(error)
    for tool in ("openssl", "kubectl", "curl"):
        if not shutil.which(tool):
            return f"{NEEDS}; there is no {tool}"
    return ""
