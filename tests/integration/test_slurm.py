"""Jobs in a real Slurm: node failure, preemption, a requeue, signals, and an allocation that grows by a second job.

Each story is a test. All of them run at one time, on nodes of their own, because each waits most of its time.
"""

import contextlib
import random
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

import pytest

from .cluster import SCRIPTS
from .slurm_cluster import SlurmCluster, Unavailable

pytestmark = pytest.mark.xdist_group("slurm")

ONE_A_NODE = ("--ntasks-per-node=1", "--cpus-per-task=2", "--no-kill", "--requeue")
"""As the user guide writes it."""


def on(nodes: Sequence[str]) -> tuple[str, str]:
    """Options of sbatch: all of those nodes and no other."""
    return f"--nodes={len(nodes)}", f"--nodelist={','.join(nodes)}"


class Counting:
    """A job that counts in a file, and how it is submitted."""

    def __init__(self, slurm: SlurmCluster, folder: Path, steps: int) -> None:
        self.slurm = slurm
        self.file = folder / "steps"
        # No agent chooses it, nor does the kernel: neither this nor the one that the store's members have beside it.
        self.port = random.randrange(61_000, 64_500)
        self.words = f"{SCRIPTS / 'count_steps.py'} {self.file} {steps}"

    def submit(self, nodes: Sequence[str], flags: str = "") -> str:
        launcher = f"{shutil.which('elastic-run', path=str(Path(sys.executable).parent))} --framework=none --nnodes=1:3"
        store = f"--master-port={self.port} --store-dir={self.file.parent}/store"
        line = f"srun --kill-on-bad-exit=0 {launcher} {flags or store} {self.words}"
        requeue = '[ $? = 143 ] && scontrol requeue "$SLURM_JOB_ID"'
        return self.slurm.submit([*ONE_A_NODE, *on(nodes)], f"{line} || {{ {requeue}; }}")

    def begun(self, job: str, workers: int, times: int = 1) -> None:
        """Waits until so many workers have begun together, for the nth time."""
        line = re.compile(rf"rank 0 of {workers} on n\d+ begins")
        self.slurm.until(lambda: len(line.findall(self.slurm.output(job))) >= times, f"start of {workers} workers", job)

    def further(self) -> None:
        """Waits until some more has been counted."""
        before = self.count()
        self.slurm.until(lambda: self.count() > before + 3, "progress")

    def count(self) -> int:
        return int(self.file.read_text()) if self.file.exists() else 0

    def ended(self, job: str, state: str = "COMPLETED") -> str:
        """Waits until the job has this state; what it printed.

        Slurm's two minutes before a requeue are cut short, to some seconds: a node refuses a job ("credential revoked")
        that starts again in the second in which it ended there.
        """
        hurried = {"0"}

        def found() -> bool:
            now = self.slurm.state(job)
            if now == "PENDING" and (restart := self.slurm.field(job, "Restarts")) not in hurried:
                with contextlib.suppress(subprocess.CalledProcessError):  # it has started since, or has not ended yet
                    self.slurm.command("scontrol", "update", f"JobId={job}", "StartTime=now+3")
                    hurried.add(restart)
            return now == state

        self.slurm.until(found, state, job)
        return self.slurm.output(job)


def one_agent_a_node_without_an_endpoint(cluster: SlurmCluster, folder: Path, nodes: Sequence[str]) -> None:
    counting = Counting(cluster, folder, 20)
    printed = counting.ended(counting.submit(nodes))
    assert {f"rank {rank} of 3 has counted to 20" in printed for rank in range(3)} == {True}, printed
    assert printed.count("succeeded") == 3


def a_node_fails_and_the_others_go_on(cluster: SlurmCluster, folder: Path, nodes: Sequence[str]) -> None:
    """Not the first, where the store is: that node's loss ends the job, and Slurm starts it again."""
    counting = Counting(cluster, folder, 150)
    job = counting.submit(nodes)
    counting.begun(job, workers=2)
    counting.further()
    cluster.kill_node(nodes[-1])
    counting.begun(job, workers=1)
    cluster.until(lambda: "rank 0 of 1 has counted to 150" in cluster.output(job), "last step", job)
    assert cluster.field(job, "Restarts") == "0"
    cluster.until(lambda: cluster.state(job) not in ("RUNNING", "COMPLETING"), "end", job)


def a_lost_first_node_requeues_the_job(cluster: SlurmCluster, folder: Path, nodes: Sequence[str]) -> None:
    counting = Counting(cluster, folder, 100)
    job = counting.submit(nodes)
    counting.begun(job, workers=1)
    counting.further()
    before = counting.count()
    cluster.kill_node(*nodes)
    cluster.until(lambda: cluster.state(job) == "PENDING", "requeue", job)
    cluster.restart_node(*nodes)
    printed = counting.ended(job)
    begun = [int(one) for one in re.findall(r"begins at step (\d+)", printed)]
    assert len(begun) == 2 and begun[1] >= before, printed
    assert cluster.field(job, "Restarts") == "1"


def preemption_leaves_in_order_and_comes_back(cluster: SlurmCluster, folder: Path, nodes: Sequence[str]) -> None:
    counting = Counting(cluster, folder, 100)
    job = counting.submit(nodes)
    counting.begun(job, workers=3)
    counting.further()
    urgent = cluster.submit(["--partition=high", "--exclusive", *on(nodes)], "sleep 3")
    cluster.until(lambda: cluster.state(urgent) == "COMPLETED", "urgent job", job)
    printed = counting.ended(job)
    assert "SIGTERM" in printed, printed
    assert int(cluster.field(job, "Restarts")) >= 1
    assert [int(one) for one in re.findall(r"rank 0 of \d on n\d+ begins at step (\d+)", printed)][-1] > 0, printed


def a_signal_by_scancel_is_a_notice_to_leave(cluster: SlurmCluster, folder: Path, nodes: Sequence[str]) -> None:
    counting = Counting(cluster, folder, 60)
    job = counting.submit(nodes)
    counting.begun(job, workers=2)
    counting.further()
    cluster.command("scancel", "--signal=TERM", job)
    printed = counting.ended(job)
    assert "SIGTERM: this node leaves the job" in printed and "Traceback" not in printed, printed
    assert cluster.field(job, "Restarts") == "1"


def a_cancelled_job_does_not_come_back(cluster: SlurmCluster, folder: Path, nodes: Sequence[str]) -> None:
    counting = Counting(cluster, folder, 100_000)
    job = counting.submit(nodes)
    counting.begun(job, workers=2)
    cluster.command("scancel", job)
    printed = counting.ended(job, "CANCELLED")
    assert "Traceback" not in printed, printed
    assert cluster.field(job, "Restarts") == "0"


def a_second_job_joins_the_first(cluster: SlurmCluster, folder: Path, nodes: Sequence[str]) -> None:
    counting = Counting(cluster, folder, 150)
    store = f"--rdzv-endpoint={nodes[0]}:{counting.port} --rdzv-id=grown --store-dir={folder}/store"
    first = counting.submit(nodes[:1], flags=store)
    counting.begun(first, workers=1)
    second = counting.submit(nodes[1:], flags=store)
    line = re.compile(rf"rank \d of 3 on ({'|'.join(nodes[1:])}) begins")
    cluster.until(lambda: bool(line.search(cluster.output(second))), "growth", first, second)
    assert "has counted to 150" in counting.ended(first)
    assert "has counted to 150" in counting.ended(second)


STORIES: Mapping[Callable[[SlurmCluster, Path, Sequence[str]], None], int] = {
    a_lost_first_node_requeues_the_job: 1,
    a_node_fails_and_the_others_go_on: 2,
    preemption_leaves_in_order_and_comes_back: 3,
    a_signal_by_scancel_is_a_notice_to_leave: 2,
    a_second_job_joins_the_first: 3,
    a_cancelled_job_does_not_come_back: 2,
    one_agent_a_node_without_an_endpoint: 3,
}
"""How many nodes each needs; it hurts no others."""


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Mapping[object, "Future[None]"]]:
    """All stories, each in a thread."""
    try:
        with (
            SlurmCluster(tmp_path_factory.mktemp("slurm"), nodes=sum(STORIES.values())) as slurm,
            ThreadPoolExecutor(len(STORIES)) as threads,
        ):
            nodes = iter(slurm.nodes)
            yield {
                story: threads.submit(
                    story, slurm, tmp_path_factory.mktemp("story"), [next(nodes) for _ in range(size)]
                )
                for story, size in STORIES.items()
            }
    except Unavailable as reason:
        pytest.skip(f"no Slurm: {reason}")


@pytest.mark.parametrize("story", STORIES, ids=lambda story: story.__name__)
def test_in_slurm(running: Mapping[object, "Future[None]"], story: object) -> None:
    running[story].result()
