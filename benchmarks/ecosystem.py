"""`python -m benchmarks.ecosystem`: scripts of PyTorch's ecosystem, unchanged, under torchrun and under elastic-run.

Each script trains with two workers and checkpoints in the way that its library documents. It runs under torchrun to its
end; under elastic-run to its end; and under elastic-run while one worker is killed with SIGKILL, once a checkpoint is
whole. All three have to print the same result: a sum over the weights, to nine digits. Every run has an empty home and
a new folder. A script is left out where one of its packages is not installed.

Scripts of others that run without a GPU are in `python -m benchmarks.third_party`.
"""

import argparse
import dataclasses
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass

import psutil

from .arena import Arena, DidNotCome, adopt_orphans
from .launchers import OURS, SCRIPTS, TORCHRUN, Job, Launcher, command
from .third_party import missing_packages

WORKERS = 2
BOUND = 240.0
PAUSE = 0.1
"""From a whole checkpoint to the kill, in seconds: what is written after it is written, and the next has not begun."""

OWN = SCRIPTS / "ecosystem"
EXPLAINED = dataclasses.replace(OURS, words=("--explain-preload",))

_COUNTED = re.compile(r"imported ahead for the workers \((\d+) modules")
_RESULT = re.compile(r"\bresult (-?[\d.]+)$", re.MULTILINE)
_RESUMED = re.compile(r"\bresumed (.+)")


@dataclass(frozen=True, slots=True)
class Subject:
    """One script.

    Attributes:
        name: as the table calls it.
        packages: what has to be installed.
        words: its command line; `{out}` stands for the folder of its checkpoints.
        whole: a pattern below that folder, of which some file is there once the first checkpoint is whole.
        remark: what a user has to know.
    """

    name: str
    packages: tuple[str, ...]
    words: tuple[str, ...]
    whole: str
    remark: str = ""


@dataclass(frozen=True, slots=True)
class Ran:
    """One run.

    Attributes:
        result: what the script printed at its end; empty: nothing.
        resumed: from where it says that it went on after the kill.
        error: why there is no result.
    """

    result: str
    resumed: str = ""
    error: str = ""


@dataclass(frozen=True, slots=True)
class Found:
    """What became of one script: its three runs, and how many modules its workers find imported."""

    torchrun: Ran
    ours: Ran
    killed: Ran
    ahead: int

    @property
    def same(self) -> bool:
        return bool(self.torchrun.result) and self.torchrun.result == self.ours.result == self.killed.result


SUBJECTS = (
    Subject("DDP, with snapshots as in torch's tutorial", ("torch",), ("ddp_snapshot.py", "{out}"), "snapshot.pt"),
    Subject("DDP, spawned loader processes", ("torch",), ("spawned_loader.py", "{out}"), "snapshot.pt"),
    Subject("ZeroRedundancyOptimizer", ("torch",), ("zero_optimizer.py", "{out}"), "snapshot.pt"),
    Subject("FSDP2 with distributed checkpoints", ("torch",), ("fsdp2_dcp.py", "{out}"), "step-*/.metadata"),
    Subject(
        "transformers' Trainer",
        ("torch", "transformers", "accelerate"),
        ("hf_trainer.py", "{out}"),
        "checkpoint-20/trainer_state.json",
    ),
    Subject(
        "peft's LoRA in transformers' Trainer",
        ("torch", "transformers", "accelerate", "peft"),
        ("peft_lora.py", "{out}"),
        "checkpoint-20/trainer_state.json",
    ),
    Subject(
        "accelerate, a loop of one's own",
        ("torch", "accelerate"),
        ("accelerate_loop.py", "{out}"),
        "checkpoints/*/whole",
        remark="what `accelerate launch` would export, the script has to say itself",
    ),
    Subject(
        "Lightning's Trainer",
        ("torch", "lightning"),
        ("lightning_fit.py", "{out}"),
        "last.ckpt",
        remark="`devices` and `num_nodes` have to be those of the round",
    ),
    Subject(
        "Lightning's Fabric",
        ("torch", "lightning"),
        ("lightning_fabric.py", "{out}"),
        "last.ckpt",
        remark="as with the Trainer",
    ),
    Subject("ignite's Engine", ("torch", "ignite"), ("ignite_engine.py", "{out}"), "checkpoint_*.pt"),
    Subject("a hydra application", ("torch", "hydra"), ("hydra_app.py", "hydra.run.dir={out}"), "snapshot.pt"),
    Subject(
        "`-m package`, with torchdata's StatefulDataLoader",
        ("torch", "torchdata"),
        ("-m", "package", "{out}"),
        "rank1.pt",
    ),
)


def examine(subject: Subject) -> Found:
    """Runs it under torchrun, under elastic-run, and under elastic-run with a worker killed."""
    with Arena("ecosystem") as arena:
        explained = _ended(arena, subject, EXPLAINED, kill=False)
    ahead = next((int(found[1]) for line in explained.splitlines() if (found := _COUNTED.search(line))), 0)
    return Found(
        run(subject, TORCHRUN, kill=False),
        run(subject, OURS, kill=False),
        run(subject, OURS, kill=True),
        ahead,
    )


def run(subject: Subject, launcher: Launcher, *, kill: bool) -> Ran:
    with Arena("ecosystem") as arena:
        try:
            printed = _ended(arena, subject, launcher, kill=kill)
        except DidNotCome as error:
            return Ran("", error=str(error))
    results = {found[1] for found in _RESULT.finditer(printed)}
    if len(results) != 1:
        return Ran("", error=f"{len(results)} results: {' '.join(printed.splitlines()[-1:])[:200]}")
    resumed = {found[1].strip() for found in _RESUMED.finditer(printed)}
    return Ran(*results, resumed="; ".join(sorted(resumed)))


def _ended(arena: Arena, subject: Subject, launcher: Launcher, *, kill: bool) -> str:
    """All that a run printed. Raises DidNotCome where it did not end with 0, or could not be killed in time."""
    folder, out = arena.folder / "script", arena.folder / "out"
    shutil.copytree(OWN, folder, ignore=shutil.ignore_patterns("__pycache__"))
    out.mkdir()
    words = tuple(word.replace("{out}", str(out)) for word in subject.words)
    environ = arena.environment(launcher) | {"HF_HUB_OFFLINE": "1"}
    job = Job(arena.job_id, "1", WORKERS, None, words)
    process = arena.start(command(launcher, job, 0, arena.folder), environ, "node0.log", folder)
    if kill:
        arena.until(lambda: next(out.glob(subject.whole), None), BOUND)
        time.sleep(PAUSE)
        os.kill(_worker(process, rank=1), signal.SIGKILL)
    arena.ended(process, BOUND)
    printed = arena.logs()[0]
    if code := process.wait():
        raise DidNotCome(f"exit code {code}: {' '.join(printed.splitlines()[-1:])[:200]}")
    return printed


def _worker(launcher: subprocess.Popen[bytes], rank: int) -> int:
    """The process of a rank: the one that the launcher's own processes started, not a loader's. Raises DidNotCome."""
    found: list[psutil.Process] = []
    for child in psutil.Process(launcher.pid).children(recursive=True):
        try:
            if child.environ().get("RANK") == str(rank):
                found.append(child)
        except psutil.Error:
            continue
    pids = {child.pid for child in found}
    for child in found:
        if child.ppid() not in pids:
            return child.pid
    raise DidNotCome(f"rank {rank} had ended before it could be killed")


def table(found: Sequence[tuple[Subject, Found | str]]) -> str:
    """As markdown: a row for each script."""
    rows = ["| script | torchrun's result | elastic-run's | with a worker killed | starts warm | remarks |"]
    rows.append("| --- | --- | --- | --- | --- | --- |")
    for subject, one in found:
        if isinstance(one, str):
            rows.append(f"| {subject.name} | left out: {one} | | | | {subject.remark} |")
            continue
        survived = (
            one.killed.error or f"{_compared(one.killed, one.torchrun)}; resumed {one.killed.resumed or 'nowhere'}"
        )
        warm = f"yes, {one.ahead} modules" if one.ahead else "no"
        first = one.torchrun.result or one.torchrun.error
        ours = _compared(one.ours, one.torchrun)
        rows.append(
            f"| {subject.name} | {first} | {ours} | {survived} | {warm} | {subject.remark} |".replace("\n", " ")
        )
    same = sum(isinstance(one, Found) and one.same for _, one in found)
    rows.append(f"\nThe same result in all three runs: {same} of {sum(isinstance(one, Found) for _, one in found)}.")
    return "\n".join(rows)


def _compared(ran: Ran, other: Ran) -> str:
    if not ran.result:
        return ran.error
    return "the same" if ran.result == other.result else f"differs: {ran.result}"


def main(argv: Sequence[str]) -> int:
    """Prints the table; 1 where a result differs, 2 where no script can run."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.ecosystem",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("names", nargs="*", metavar="NAME", help="only scripts whose name contains one of these")
    given = parser.parse_args(argv)
    adopt_orphans()
    found: list[tuple[Subject, Found | str]] = []
    for subject in SUBJECTS:
        if given.names and not any(name in subject.name for name in given.names):
            continue
        one = missing_packages(subject.packages) or examine(subject)
        print(f"{subject.name}: {one}", file=sys.stderr, flush=True)
        found.append((subject, one))
    print(table(found))
    ran = [one for _, one in found if isinstance(one, Found)]
    return 2 if not ran else int(not all(one.same for one in ran))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
