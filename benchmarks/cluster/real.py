"""The same pattern of two jobs for real and simulated: what the simulated clusters are held against.

Real are the API server, scheduler and controller manager of the cluster tests, etcd, the jobs that `elastic-job submit`
makes, and every process; pods are processes of this machine (`tests/cluster/process_kubelet.py`). The script trains
records at a fixed rate, so that other work on this machine does not change what a CPU is worth.
"""

import contextlib
import itertools
import os
import statistics
import tempfile
import threading
import time
from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from elastic_run.rendezvous.round import Policy

from .areas import Area, Panel
from .clock import run
from .job import Job, Story, Wants
from .scheduler import Cluster
from .times import Times
from .usage import Curve, Usage

CPUS = 6
MOST = 4
SECOND_AT = 20.0
RATE = 10
"""Records that a worker trains in a second."""

WORK = 1000
POLICY = Policy(1, 1, last_call=1.0, settle=1.0, scale_up_interval=5.0)
CONF = "last_call_timeout=1,settle=1,scale_up_interval=5"
BOUND = 300.0
"""Seconds after which the real run is given up."""

SCRIPT = """
import os, sys, time
folder, work, rate = sys.argv[1], int(sys.argv[2]), float(sys.argv[3])
records = os.open(f"{folder}/records", os.O_WRONLY | os.O_APPEND | os.O_CREAT)
journal = os.open(f"{folder}/journal", os.O_WRONLY | os.O_APPEND | os.O_CREAT)
born, due = time.monotonic(), 0
while os.fstat(records).st_size < work:
    time.sleep(max(0.0, born + (due + 1) / rate - time.monotonic()))
    due += 1
    os.write(records, b".")
    line = f"{born} {os.environ['RANK']} {os.environ['WORLD_SIZE']} {time.monotonic()}"
    os.write(journal, (line + chr(10)).encode())
"""
"""A record is one byte of a file; a worker that sees enough of them is done."""


@dataclass(frozen=True, slots=True)
class Step:
    """One record: trained when, by which rank of how many, in a process that began `born`. Monotonic seconds."""

    born: float
    rank: int
    world: int
    at: float


@dataclass(frozen=True, slots=True)
class Watched:
    """One pod. `at`: by state, when it was first seen in it. A later pod may have its name."""

    name: str
    component: str
    at: dict[str, float]


@dataclass(slots=True)
class Watcher:
    """Looks at a namespace's pods all the time, and notes when each came into each state (monotonic seconds)."""

    jobs: Any  # tests.cluster.jobs.Jobs, which are no package's
    seen: dict[str, Watched] = field(default_factory=dict[str, Watched])
    _over: threading.Event = field(default_factory=threading.Event)

    @contextlib.contextmanager
    def watching(self) -> Generator["Watcher"]:
        """While the context lasts."""
        from tests.cluster.process_kubelet import Rest

        rest = Rest(self.jobs.plane)

        def watch() -> None:
            while not self._over.wait(0.05):
                found = rest.ask("GET", f"/api/v1/namespaces/{self.jobs.namespace}/pods")["items"]
                self._note(found, time.monotonic())

        thread = threading.Thread(target=watch, daemon=True)
        thread.start()
        try:
            yield self
        finally:
            self._over.set()
            thread.join(30.0)

    def _note(self, found: Sequence[Any], now: float) -> None:
        there = {each["metadata"]["uid"] for each in found}
        for each in found:
            metadata, status = each["metadata"], each["status"]
            component = metadata.get("labels", {}).get("elastic-run.dev/component", "")
            pod = self.seen.setdefault(metadata["uid"], Watched(metadata["name"], component, {"created": now}))
            if each["spec"].get("nodeName"):
                pod.at.setdefault("bound", now)
            if status.get("phase") == "Running":
                pod.at.setdefault("running", now)
            if status.get("phase") in ("Succeeded", "Failed"):
                pod.at.setdefault("ended", now)
        for uid, pod in self.seen.items():
            if uid not in there:
                pod.at.setdefault("ended", now)

    def of(self, prefix: str) -> list[dict[str, float]]:
        """When the pods whose names begin so came into their states; without masters."""
        return [pod.at for pod in self.seen.values() if pod.name.startswith(prefix) and pod.component != "master"]

    def held(self, prefix: str, begin: float, end: float) -> Curve:
        """How many pods whose names begin so had a place, over time, for `end` seconds from `begin` on."""
        changes: dict[float, int] = {}
        for states in self.of(prefix):
            if "bound" in states:
                changes[states["bound"]] = changes.get(states["bound"], 0) + 1
                if "ended" in states:
                    changes[states["ended"]] = changes.get(states["ended"], 0) - 1
        curve = Curve()
        for at in sorted(changes):
            if at - begin < end:
                curve.add(changes[at], at - begin)
        curve.times.append(end)
        curve.values.append(curve.values[-1] if curve.values else 0.0)
        return curve


@dataclass(frozen=True, slots=True)
class Seen:
    """What a run of the pattern came to. Seconds from the first submission.

    Attributes:
        done: by job, when it had trained its work.
        seconds: when both had.
    """

    done: Mapping[str, float]

    @property
    def seconds(self) -> float:
        """Until both were done."""
        return max(self.done.values())

    @property
    def goodput(self) -> float:
        """CPU-seconds of training for each CPU-second of the cluster, until both were done."""
        return len(self.done) * WORK / RATE / (CPUS * self.seconds)


def steps(folder: Path) -> list[Step]:
    """What the workers of a job have written."""
    found: list[Step] = []
    for line in (folder / "journal").read_text(encoding="utf-8").splitlines():
        born, rank, world, at = line.split()
        found.append(Step(float(born), int(rank), int(world), float(at)))
    return sorted(found, key=lambda one: one.at)


@contextlib.contextmanager
def _cluster(cpus: int) -> Generator[Any]:
    from tests.cluster.control_plane import ControlPlane
    from tests.cluster.jobs import Jobs

    with tempfile.TemporaryDirectory(prefix="cluster-") as folder:
        root = Path(folder)
        # One CPU more than nodes may have: masters ask for a tenth of one each.
        with ControlPlane(root / "plane") as plane:
            (root / "jobs").mkdir()
            jobs = Jobs(plane, root / "jobs")
            with jobs.machine(cpu=cpus + 1):
                yield jobs


def _submit(jobs: Any, name: str, nodes: str, work: int, *words: str) -> Path:
    folder = jobs.folder / name
    folder.mkdir()
    (folder / "train.py").write_text(SCRIPT)
    flags = [f"--name={name}", "--image=any", "--no-wait", "--cpu=1", "--shutdown-timeout=3", f"--nnodes={nodes}"]
    store = [f"--rdzv-endpoint=http://{jobs.plane.store}", f"--rdzv-conf={CONF}"]
    script = [str(folder / "train.py"), str(folder), str(work), str(RATE)]
    jobs.run("submit", *flags, *store, *words, "--", *script)
    return folder


def real() -> tuple[Seen, Times, tuple[float, float]]:
    """Runs the pattern on this machine: what it came to, how long things took in it, and when jobs were submitted.

    Raises AssertionError where it does not end in BOUND seconds.
    """
    with _cluster(CPUS) as jobs, Watcher(jobs).watching() as watcher:
        folders: dict[str, Path] = {}
        submitted: dict[str, float] = {}
        begin = time.monotonic()
        for name in ("first", "second"):
            time.sleep(max(0.0, begin + SECOND_AT * len(folders) - time.monotonic()))
            folders[name] = _submit(jobs, name, f"1:{MOST}", WORK)
            submitted[name] = time.monotonic()  # the command has made the job, and ends
        for name in folders:
            jobs.wait(lambda name=name: jobs.status(name).get("state") == "succeeded", lambda: "its end", BOUND)
        time.sleep(1.0)
        found = {name: steps(folder) for name, folder in folders.items()}
    zero = submitted["first"]
    done = {name: each[WORK - 1].at - zero for name, each in found.items()}
    return Seen(done), times_of(watcher, found, submitted), (0.0, submitted["second"] - zero)


def times_of(watcher: Watcher, found: Mapping[str, Sequence[Step]], submitted: Mapping[str, float]) -> Times:
    """How long things took: medians over the pods, and over the changes of rounds."""
    pods = {name: [each for each in watcher.of(f"{name}-") if "running" in each] for name in found}
    every = [each for of_job in pods.values() for each in of_job]
    master = [min(each["created"] for each in pods[name]) - submitted[name] for name in found]
    at_once = [each for each in every if each["bound"] - each["created"] < 1.0]
    container = [each["running"] - each["bound"] for each in every]
    ends = [each["ended"] - found[name][-1].at for name in found for each in pods[name] if "ended" in each]
    gaps: list[float] = []
    first: list[float] = []
    for name, each in found.items():
        born = sorted({step.born for step in each})
        waves = [list(wave) for _, wave in itertools.groupby(born, key=lambda one: sum(b < one - 0.8 for b in born))]
        starts = [max(wave) for wave in waves]
        for start in starts[1:]:
            before = [step.at for step in each if step.at < start and step.born < start - 0.8]
            gaps.append(start - max(before) - 0.5 / RATE)
        # With all that it may have, a job does not wait for more.
        waited = 0.0 if next(step.world for step in each) == MOST else POLICY.last_call
        first.append(starts[0] - max(one["running"] for one in pods[name] if one["running"] < starts[0]) - waited)
    script = max(0.02, statistics.median(gaps) - 0.02) if gaps else 0.2
    return Times(
        api=0.02,
        schedule=max(0.01, statistics.median(each["bound"] - each["created"] for each in at_once)),
        container=statistics.median(container),
        master=statistics.median(master),
        agent=max(0.05, statistics.median(first) - script),
        script=script,
        leave=0.0,
        form=0.01,
        stop=0.02,
        store=0.003,
        end=max(0.05, statistics.median(ends) - 0.05),
    )


def simulated(times: Times, submitted: Sequence[float]) -> Seen:
    """The same pattern on the virtual clock."""
    names = ("first", "second")
    wants = [
        Wants(name, at, WORK / RATE, 1, MOST, stays=False, policy=POLICY)
        for name, at in zip(names, submitted, strict=True)
    ]
    stories = run(lambda: _simulated(wants, times))
    return Seen({name: story.done or 0.0 for name, story in zip(names, stories, strict=True)})


async def _simulated(wants: Sequence[Wants], times: Times) -> list[Story]:
    import asyncio

    cluster = Cluster((CPUS,), times, Usage())
    return list(await asyncio.gather(*(Job(each, cluster).run() for each in wants)))


HEAD = ("", "first job done, s", "second job done, s", "goodput")


def rows(truth: Seen, model: Seen) -> list[tuple[str, ...]]:
    """Both, and the difference."""
    lines = [
        (name, f"{each.done['first']:.1f}", f"{each.done['second']:.1f}", f"{each.goodput:.1%}")
        for name, each in (("real", truth), ("simulated", model))
    ]
    off = [model.done[name] / truth.done[name] - 1 for name in ("first", "second")]
    return [*lines, ("difference", *(f"{each:+.1%}" for each in off), f"{model.goodput / truth.goodput - 1:+.1%}")]


# -- a job that gives way and grows back ------------------------------------------------------------------------------

SERVICE = ((10.0, 2), (25.0, 4), (45.0, 1), (60.0, 0))
"""When the service wants how many pods of one CPU, seconds after the job trains with all it may."""


def gives_way() -> tuple[list[Panel], list[float]]:
    """A real job of a low priority beside pods of a high one, which come and go.

    Who had how many CPUs, and for how many seconds each pod of the service waited for its place.
    """
    with _cluster(CPUS) as jobs, Watcher(jobs).watching() as watcher:
        for name, value in (("low", 10), ("high", 1000)):
            jobs.plane.apply(_priority(name, value))
        begin = time.monotonic()
        _submit(jobs, "job", f"1:{CPUS}", 1_000_000, "--priority-class=low")
        jobs.until("job", CPUS)
        zero = time.monotonic()
        names: list[str] = []
        for number, (at, wanted) in enumerate(SERVICE):
            time.sleep(max(0.0, zero + at - time.monotonic()))
            while len(names) > wanted:
                jobs.plane.kubectl("delete", "pod", names.pop(), "-n", jobs.namespace, "--wait=false")
            more = [f"service-{number}-{each}" for each in range(wanted - len(names))]
            for name in more:
                jobs.plane.apply(_pod(name, jobs.namespace))
            names += more
        jobs.until("job", CPUS)
        time.sleep(8.0)
        end = time.monotonic() - begin
        trained = [step.at - begin for step in steps(jobs.folder / "job")]
    waits = [each["bound"] - each["created"] for each in watcher.of("service-")]
    service = Area("online service", watcher.held("service-", begin, end), "#1f77b4")
    panels = [
        Panel("pods that have a place", (service, Area("training job", held, "#2ca02c")), float(CPUS))
        for held in (watcher.held("job-", begin, end), _rates(trained, end))
    ]
    panels[1] = replace(panels[1], title="pods that serve, and workers that train: records in half a second")
    return panels, waits


def _rates(trained: Sequence[float], end: float) -> Curve:
    """How many workers train, by the records of each half second; `trained`: when each record was."""
    counts: dict[int, int] = {}
    for at in trained:
        counts[int(2 * at)] = counts.get(int(2 * at), 0) + 1
    curve = Curve()
    for half in range(int(2 * end) + 1):
        curve.set(min(CPUS, 2 * counts.get(half, 0) / RATE), half / 2)
    return curve


def _priority(name: str, value: int) -> dict[str, Any]:
    return {
        "apiVersion": "scheduling.k8s.io/v1",
        "kind": "PriorityClass",
        "metadata": {"name": name},
        "value": value,
    }


def _pod(name: str, namespace: str) -> dict[str, Any]:
    container = {"name": "service", "image": "any", "command": ["sleep", "1000"]}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {
            "priorityClassName": "high",
            "terminationGracePeriodSeconds": 1,
            "containers": [{**container, "resources": {"requests": {"cpu": "1"}}}],
        },
    }


def missing() -> str:
    """Why none of this can run here; empty where it can."""
    try:
        from tests.cluster.control_plane import missing as no_control_plane
    except ModuleNotFoundError as error:
        return f"this needs the tests and what they need: {error}"
    return no_control_plane() or ("" if os.getuid() == 0 else "a pod's processes have namespaces of their own: be root")
