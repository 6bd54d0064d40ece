"""A real Slurm on one machine: a controller, munge, and several nodes with names of their own.

    with SlurmCluster(folder, nodes=3) as slurm:
        job = slurm.submit(["--nodes=2"], "srun elastic-run train.py")
        slurm.until(lambda: "rank 0" in slurm.output(job), "the first line")
        slurm.kill_node("n2")
        assert slurm.state(job) == "COMPLETED"

Each node is a `slurmd -N` in a mount and a host name namespace of its own, so that its programs find all nodes by their
names and their own host name. They share network and file system. Everything needs root. Entering raises `Unavailable`
with the reason where this machine cannot do it.
"""

import contextlib
import itertools
import os
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from types import TracebackType

import psutil

from .conftest import free_ports

TOOLS = ("slurmctld", "slurmd", "sbatch", "munged", "unshare")
DEADLINE = 120.0
COMMAND_SECONDS = 60.0

_CONFIGURATION = """\
ClusterName=elastic
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={port}
AuthType=auth/munge
AuthInfo=socket={folder}/munge.sock
MpiDefault=none
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SwitchType=switch/none
SlurmUser=root
SlurmdUser=root
ReturnToService=2
SlurmctldPidFile={folder}/controller.pid
SlurmdPidFile={folder}/%n/slurmd.pid
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/%n
SlurmctldLogFile={folder}/controller.log
SlurmdLogFile={folder}/%n.log
SlurmdParameters=config_overrides
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
SlurmdTimeout=10
KillWait=10
SchedulerType=sched/backfill
SchedulerParameters=sched_interval=1,bf_interval=1,batch_sched_delay=0
PreemptType=preempt/partition_prio
PreemptMode=REQUEUE
{nodes}
PartitionName=low Nodes=ALL Default=YES MaxTime=INFINITE State=UP PriorityTier=1 PreemptMode=REQUEUE GraceTime=30
PartitionName=high Nodes=ALL MaxTime=INFINITE State=UP PriorityTier=10
"""


class Unavailable(Exception):
    """This machine cannot run a Slurm of the test's own; the message says why."""


class SlurmCluster:
    """A controller and `nodes` nodes, called n1, n2 and so on, of two processors each.

    There are two partitions. A job of `high` preempts those of `low`, which get SIGTERM, 30 s, and another place in
    the queue.
    """

    def __init__(self, folder: Path, nodes: int) -> None:
        self.folder = folder
        self.nodes = tuple(f"n{number}" for number in range(1, nodes + 1))
        self._numbers = itertools.count()
        self._environ = os.environ | {"SLURM_CONF": str(folder / "slurm.conf")}

    def __enter__(self) -> "SlurmCluster":
        if absent := [tool for tool in TOOLS if shutil.which(tool) is None]:
            raise Unavailable(f"there is no {', '.join(absent)}")
        if os.geteuid() != 0:
            raise Unavailable("it needs root")
        try:
            self._start()
        except (subprocess.SubprocessError, OSError, TimeoutError) as error:
            self._stop()
            said = getattr(error, "stderr", "") or error
            raise Unavailable(f"Slurm does not start: {str(said).strip()}") from error
        except BaseException:
            self._stop()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop()

    def submit(self, options: Sequence[str], *lines: str) -> str:
        """Gives sbatch a script with these lines; the job's number."""
        script = self.folder / f"job{next(self._numbers)}.sh"  # threads submit at one time
        script.write_text("\n".join(["#!/bin/bash", *lines, ""]), encoding="utf-8")
        words = ["sbatch", "--parsable", f"--output={self.folder}/%j.out", "--open-mode=append", *options, str(script)]
        return self.command(*words).strip()

    def command(self, *words: str) -> str:
        """What one of Slurm's programs prints. Raises CalledProcessError."""
        done = subprocess.run(
            words,
            env=self._environ,
            cwd=self.folder,
            capture_output=True,
            text=True,
            timeout=COMMAND_SECONDS,
            check=True,
        )
        return done.stdout

    def output(self, job: str) -> str:
        """What the job has printed so far."""
        file = self.folder / f"{job}.out"
        return file.read_text(encoding="utf-8", errors="replace") if file.exists() else ""

    def field(self, job: str, name: str) -> str:
        """What `scontrol show job` says of it, as in JobState."""
        words = self.command("scontrol", "--oneliner", "show", "job", job).split()
        return dict(word.partition("=")[::2] for word in words)[name]

    def state(self, job: str) -> str:
        """RUNNING, PENDING, COMPLETED and so on."""
        return self.field(job, "JobState")

    def until(self, found: Callable[[], bool], what: str, *jobs: str) -> None:
        """Waits for something. Raises AssertionError with what the jobs printed."""
        deadline = time.monotonic() + DEADLINE
        while not found():
            assert time.monotonic() < deadline, f"no {what} within {DEADLINE:g} s\n{self._story(*jobs)}"
            time.sleep(0.1)

    def _story(self, *jobs: str) -> str:
        """What a person wants to see where a wait was in vain."""
        log = (self.folder / "controller.log").read_text(encoding="utf-8", errors="replace").splitlines()[-30:]
        return "\n".join(
            [*map(self.output, jobs), self.command("squeue", "--states=all"), self.command("sinfo", "-N"), *log]
        )

    def kill_node(self, node: str) -> None:
        """The machine loses power: its slurmd, its steps and all that they started die with SIGKILL.

        Those who would report a death to the controller die first.
        """
        for reports in (True, False):
            found = [process for process in self._of(node) if _reports_deaths(process) == reports]
            for process in found:
                with contextlib.suppress(psutil.NoSuchProcess):
                    process.kill()
            psutil.wait_procs(found, timeout=COMMAND_SECONDS)

    def _start(self) -> None:
        self.folder.chmod(0o755)  # munge wants its socket to be reached by all
        ports = free_ports(1 + len(self.nodes))
        for name in ("state", *self.nodes):
            (self.folder / name).mkdir()
        lines = (
            f"NodeName={node} NodeHostname={node} NodeAddr=127.0.0.1 Port={port} CPUs=2 State=UNKNOWN"
            for node, port in zip(self.nodes, ports[1:], strict=True)
        )
        host = socket.gethostname()
        (self.folder / "slurm.conf").write_text(
            _CONFIGURATION.format(host=host, port=ports[0], folder=self.folder, nodes="\n".join(lines)),
            encoding="utf-8",
        )
        (self.folder / "hosts").write_text(f"127.0.0.1 localhost {' '.join(self.nodes)} {host}\n", encoding="utf-8")
        key = self.folder / "munge.key"
        key.write_bytes(os.urandom(1024))
        key.chmod(0o400)
        munge = {"key-file": "munge.key", "socket": "munge.sock", "pid-file": "munge.pid", "log-file": "munge.log"}
        self.command("munged", "--force", *(f"--{name}={self.folder}/{file}" for name, file in munge.items()))
        self.command("slurmctld")
        for node in self.nodes:
            self._start_node(node)
        self._all_idle()

    def restart_node(self, node: str) -> None:
        """The machine comes back."""
        self.kill_node(node)
        self._start_node(node)

    def _start_node(self, node: str) -> None:
        enter = f'mount --bind "{self.folder}/hosts" /etc/hosts && hostname {node} && exec slurmd -N {node}'
        self.command("unshare", "--mount", "--uts", "sh", "-c", enter)

    def _all_idle(self) -> None:
        deadline = time.monotonic() + COMMAND_SECONDS
        while self.command("sinfo", "--noheader", "--partition=low", "--states=idle", "--format=%D").strip() != str(
            len(self.nodes)
        ):
            if time.monotonic() > deadline:
                raise TimeoutError(f"not all nodes are ready: {self.command('sinfo')}")
            time.sleep(0.1)

    def _stop(self) -> None:
        ours = [process for node in self.nodes for process in self._of(node)]
        for name in ("controller.pid", "munge.pid"):
            with contextlib.suppress(OSError, ValueError, psutil.NoSuchProcess):
                ours.append(psutil.Process(int((self.folder / name).read_text())))
        for process in ours:
            with contextlib.suppress(psutil.NoSuchProcess):
                process.send_signal(signal.SIGKILL)
        psutil.wait_procs(ours, timeout=COMMAND_SECONDS)

    def _of(self, node: str) -> list[psutil.Process]:
        """The node's processes: those with its name, those of this Slurm, and the steps that hold them."""
        found: dict[int, psutil.Process] = {}
        for process in psutil.process_iter():
            try:
                environ, words, name = process.environ(), process.cmdline(), process.name()
            except psutil.Error:
                continue
            if environ.get("SLURM_CONF") != self._environ["SLURM_CONF"]:
                continue
            if environ.get("SLURMD_NODENAME") != node and (name != "slurmd" or node not in words):
                continue
            found[process.pid] = process
            with contextlib.suppress(psutil.Error):
                step = process.parent()
                if step is not None and step.name() == "slurmstepd":
                    found[step.pid] = step
        return list(found.values())


def _reports_deaths(process: psutil.Process) -> bool:
    """It is of Slurm itself, and has not ended. A job's script is called slurm_script."""
    try:
        return process.name() in ("slurmd", "slurmstepd")
    except psutil.NoSuchProcess:
        return False
