"""The launchers and how each one is called (pure). What a user would set is equal for all; what differs is named."""

import dataclasses
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

SCRIPTS = Path(__file__).parent / "scripts"
NOSHARE = "TORCH_DISABLE_SHARE_RDZV_TCP_STORE"
TUNED = "last_call_timeout=1,keep_alive_interval=1,keep_alive_max_attempt=3"
NAMES = f"noshare: {NOSHARE}=1; tuned: --rdzv-conf={TUNED}"
"""What the names of torchrun's variants mean."""

RESTARTS = 5


@dataclass(frozen=True, slots=True)
class Launcher:
    """One way to start a script.

    Attributes:
        name: as the tables call it.
        kind: whose command line it takes. `bare` is no launcher: interpreters with the environment of workers.
        conf: `--rdzv-conf`.
        shares_store: torchrun only: its default, in which the workers use the agent's store.
        every: it takes part in each `every`-th round of the contest (1: in all), because it is slow.
        slow: it waits for times of its own of half a minute and more; `--quick` goes without it.
        words: options that only this one has.
        script: the training script that it is given, where a benchmark has one for it.
    """

    name: str
    kind: Literal["elastic-run", "torchrun", "bare"]
    conf: str = ""
    shares_store: bool = False
    every: int = 1
    slow: bool = False
    words: tuple[str, ...] = ()
    script: str = "ddp_steps.py"


OURS = Launcher("elastic-run", "elastic-run")
IN_PLACE = Launcher("elastic-run, in place", "elastic-run", script="in_place_steps.py")
OURS_SPAWNED = Launcher("elastic-run, --start-method=spawn", "elastic-run", words=("--start-method=spawn",))
BARE = Launcher("bare python, no launcher", "bare")
TORCHRUN = Launcher("torchrun, noshare", "torchrun")
TORCHRUN_TUNED = Launcher("torchrun, noshare, tuned", "torchrun", conf=TUNED)
TORCHRUN_AS_IS = Launcher("torchrun as it comes", "torchrun", shares_store=True, every=2, slow=True)
TORCHRUN_SLOW = dataclasses.replace(TORCHRUN, slow=True)
"""The same, where its default times are what is waited for."""


@dataclass(frozen=True, slots=True)
class Job:
    """What is started.

    Attributes:
        id: its name.
        nodes: `--nnodes`.
        nproc: workers per node.
        port: where the nodes meet, on loopback; None for `--standalone`.
        words: the script and its arguments.
        restarts: `--max-restarts`.
    """

    id: str
    nodes: str
    nproc: int
    port: int | None
    words: tuple[str, ...]
    restarts: int = RESTARTS


def command(launcher: Launcher, job: Job, node: int, folder: Path) -> list[str]:
    """The command line of one node. `folder` takes the files of a store, where one is started."""
    if launcher.kind == "bare":
        return [sys.executable, "-u", *job.words]
    module = "elastic_run" if launcher.kind == "elastic-run" else "torch.distributed.run"
    words = [sys.executable, "-m", module, f"--nnodes={job.nodes}", f"--nproc-per-node={job.nproc}"]
    words.append(f"--max-restarts={job.restarts}")
    if job.port is None:
        words.append("--standalone")
    else:
        words += ["--rdzv-backend=c10d", f"--rdzv-endpoint=127.0.0.1:{job.port}", f"--rdzv-id={job.id}"]
        words.append("--local-addr=127.0.0.1")
        if launcher.kind == "elastic-run":
            words += [f"--node-name=node{node}", f"--store-dir={folder / 'store'}"]
    if launcher.conf:
        words.append(f"--rdzv-conf={launcher.conf}")
    return [*words, *launcher.words, *job.words]


_FOREIGN = ("PYTHONDONTWRITEBYTECODE", "PET_", "TORCHELASTIC_", "TORCH_DISABLE_", "ELASTIC_RUN_", "MASTER_", "SLURM_")


def environment(launcher: Launcher, environ: Mapping[str, str]) -> dict[str, str]:
    """The environment that a launcher is started with: the user's, without what would change one of them only.

    That is also the wish for no bytecode: an installed package has its own, a checkout would be compiled at each start.
    """
    kept = {name: value for name, value in environ.items() if not name.startswith(_FOREIGN)}
    kept |= {"OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo"}
    if launcher.kind == "torchrun" and not launcher.shares_store:
        kept[NOSHARE] = "1"
    return kept


def bare_environment(rank: int, world: int, port: int) -> dict[str, str]:
    """What a script needs of a launcher, to be started without one."""
    return {
        "RANK": str(rank),
        "LOCAL_RANK": str(rank),
        "WORLD_SIZE": str(world),
        "LOCAL_WORLD_SIZE": str(world),
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(port),
    }
