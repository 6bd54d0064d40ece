"""`python -m benchmarks.third_party --checkouts DIR`: which scripts start warm, and why not the others.

Each script runs once, with an empty home, in a new folder and with new arguments. Before that, `--explain-preload` says
what its workers would find imported, and a run with `--start-method=spawn` counts what they import in all. Half of the
scripts are others' own: they are taken from DIR, which holds clones of the repositories that CHECKOUTS names. The other
half are ours, in `benchmarks/scripts/third_party/`, and use the libraries as these libraries' examples do. The data are
random and tiny. A script is left out where its clone or one of its packages is not there.

Where there is no GPU, some of the scripts end once they ask for one. That is after their imports, so the count holds.
"""

import argparse
import array
import contextlib
import dataclasses
import importlib.util
import os
import random
import re
import shutil
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from .arena import Arena, DidNotCome, adopt_orphans
from .launchers import OURS, SCRIPTS, Job, Launcher, command

WORKERS = 2
BOUND = 240.0
HALF = 0.5
"""Of the modules that a worker imports: a script with as many imported ahead counts as warm."""

EXPLAINED = dataclasses.replace(OURS, words=("--explain-preload",))
SPAWNED = dataclasses.replace(OURS, words=("--start-method=spawn",))

CHECKOUTS = {
    "nanoGPT": "karpathy/nanoGPT",
    "minGPT": "karpathy/minGPT",
    "examples": "pytorch/examples",
    "accelerate": "huggingface/accelerate",
    "pytorch-lightning": "Lightning-AI/pytorch-lightning",
    "pytorch-image-models": "huggingface/pytorch-image-models",
}
"""The folder below DIR, and the repository on GitHub."""

_COUNTED = re.compile(r"\((\d+) modules")
_IMPORTED = re.compile(r"rank 0\].*import time:\s+\d+ \|\s+\d+ \|\s+(\S+)")
_NO_GPU = re.compile(r"Unable to locate sufficient \d+ gpus")
_ERROR = re.compile(r"rank \d+\].*\b\w*(Error|Exception|Exit)\b")
_FRESH = re.compile(r"fresh (interpreter|process)|begins again|began again")


@dataclass(frozen=True, slots=True)
class Script:
    """One script, and how it is called.

    Attributes:
        name: as the table calls it.
        packages: what has to be installed.
        words: its command line; `{folder}` stands for the folder of the run.
        folder: where it starts, seen from the folder that is copied for it.
        checkout: the folder below DIR; empty: ours.
        paths: folders for PYTHONPATH, seen from the copy.
        made: puts random data where the script looks for them, given the copy.
    """

    name: str
    packages: tuple[str, ...]
    words: tuple[str, ...]
    folder: str = "."
    checkout: str = ""
    paths: tuple[str, ...] = ()
    made: Callable[[Path], object] = lambda copy: None


@dataclass(frozen=True, slots=True)
class Found:
    """What became of one script.

    Attributes:
        ahead: so many modules that its workers find imported.
        whole: so many that a fresh worker imports.
        remarks: what the launcher says of the rest.
        end: how the run ended.
    """

    ahead: int
    whole: int
    remarks: tuple[str, ...]
    end: str

    @property
    def warm(self) -> bool:
        return self.ahead > HALF * self.whole


def _tokens(copy: Path) -> None:
    drawn = random.Random(0)
    folder = copy / "data" / "tiny"
    folder.mkdir(parents=True)
    for name in ("train.bin", "val.bin"):
        (folder / name).write_bytes(array.array("H", (drawn.randrange(64) for _ in range(4096))).tobytes())


def _text(name: str) -> Callable[[Path], None]:
    def made(copy: Path) -> None:
        drawn = random.Random(0)  # with the letters that the script begins its sample with
        (copy / name).write_text("".join(drawn.choice("O God, abcdefgh!\n") for _ in range(20_000)), encoding="utf-8")

    return made


SCRIPTS_OF_OTHERS = (
    Script(
        "nanoGPT: train.py",
        ("torch", "numpy"),
        ("train.py", "--dataset=tiny", "--device=cpu", "--backend=gloo", "--compile=False", "--out_dir={folder}/out"),
        checkout="nanoGPT",
        made=_tokens,
    ),
    Script(
        "minGPT: chargpt.py",
        ("torch", "numpy"),
        ("chargpt.py", "--trainer.max_iters=2", "--model.model_type=gpt-nano", "--system.work_dir='{folder}/out'"),
        folder="projects/chargpt",
        checkout="minGPT",
        paths=(".",),
        made=_text("projects/chargpt/input.txt"),
    ),
    Script(
        "pytorch/examples: minGPT-ddp (hydra)",
        ("torch", "hydra", "boto3", "fsspec"),
        ("main.py", "trainer_config.snapshot_path={folder}/snapshot.pt", "data_config.path={folder}/input.txt"),
        folder="distributed/minGPT-ddp/mingpt",
        checkout="examples",
    ),
    Script(
        "pytorch/examples: imagenet",
        ("torch", "torchvision"),
        ("main.py", "--dummy", "--no-accel", "--epochs=0", "--dist-url=file://{folder}/met"),
        folder="imagenet",
        checkout="examples",
    ),
    Script(
        "pytorch/examples: ddp tutorial",
        ("torch",),
        ("{folder}/copy/distributed/ddp-tutorial-series/multigpu_torchrun.py", "1", "1"),
        folder="distributed/ddp-tutorial-series",
        checkout="examples",
    ),
    Script(
        "pytorch/examples: ddp",
        ("torch",),
        ("{folder}/copy/distributed/ddp/example.py",),
        folder="distributed/ddp",
        checkout="examples",
    ),
    Script(
        "pytorch/examples: FSDP2",
        ("torch",),
        ("{folder}/copy/distributed/FSDP2/example.py",),
        folder="distributed/FSDP2",
        checkout="examples",
    ),
    Script(
        "pytorch/examples: FSDP and tensor parallel",
        ("torch",),
        ("{folder}/copy/distributed/tensor_parallelism/fsdp_tp_example.py",),
        folder="distributed/tensor_parallelism",
        checkout="examples",
    ),
    Script(
        "accelerate: cv_example.py",
        ("torch", "accelerate", "timm", "torchvision"),
        ("cv_example.py", "--cpu", "--data_dir={folder}/none"),
        folder="examples",
        checkout="accelerate",
    ),
    Script(
        "accelerate: nlp_example.py",
        ("torch", "accelerate", "transformers", "datasets", "evaluate"),
        ("{folder}/copy/examples/nlp_example.py", "--cpu"),
        folder="examples",
        checkout="accelerate",
    ),
    Script(
        "Lightning: fabric image_classifier",
        ("torch", "lightning", "torchvision", "torchmetrics"),
        ("{folder}/copy/examples/fabric/image_classifier/train_fabric.py", "--epochs=1"),
        folder="examples/fabric/image_classifier",
        checkout="pytorch-lightning",
    ),
    Script(
        "Lightning: autoencoder (LightningCLI)",
        ("torch", "lightning", "torchvision"),
        ("autoencoder.py", "--trainer.default_root_dir={folder}/root"),
        folder="examples/pytorch/basics",
        checkout="pytorch-lightning",
    ),
    Script(
        "timm: train.py beside its own package",
        ("torch", "torchvision", "yaml", "huggingface_hub"),
        ("train.py", "--data-dir={folder}/none", "--device=cpu", "--model=resnet10t", "--output={folder}/out"),
        checkout="pytorch-image-models",
    ),
)

OWN = SCRIPTS / "third_party"

OUR_SCRIPTS = (
    Script("transformers: Trainer", ("torch", "transformers", "accelerate"), ("hf_trainer.py", "{folder}/out")),
    Script("transformers: as run_clm.py begins", ("torch", "transformers", "datasets"), ("hf_clm.py", "{folder}/out")),
    Script("accelerate", ("torch", "transformers", "accelerate"), ("hf_accelerate.py", "{folder}/out")),
    Script("Lightning: Trainer", ("torch", "lightning"), ("lightning_fit.py", "{folder}/out")),
    Script("FSDP", ("torch",), ("fsdp_train.py", "{folder}/out")),
    Script("hydra", ("torch", "hydra"), ("hydra_train.py", "hydra.run.dir={folder}/out")),
    Script("timm, installed", ("torch", "timm"), ("timm_train.py", "{folder}/out")),
    Script("torchvision", ("torch", "torchvision"), ("vision_train.py", "{folder}/out")),
    Script("datasets", ("torch", "datasets"), ("datasets_train.py", "{folder}/out")),
    Script("-m package", ("torch", "numpy"), ("-m", "trainer_package", "{folder}/out")),
)

ALL = SCRIPTS_OF_OTHERS + OUR_SCRIPTS


def missing_packages(packages: Sequence[str]) -> str:
    """Which of them are not installed, in words; empty where all are."""
    absent = [package for package in packages if importlib.util.find_spec(package) is None]
    return f"not installed: {', '.join(absent)}" if absent else ""


def missing(script: Script, checkouts: Path | None) -> str:
    """Why it cannot take part; empty where it can."""
    if absent := missing_packages(script.packages):
        return absent
    if script.checkout and checkouts is None:
        return "no --checkouts"
    if script.checkout and checkouts is not None and not (checkouts / script.checkout / script.folder).is_dir():
        return f"not in {checkouts}: {script.checkout} ({CHECKOUTS[script.checkout]})"
    return ""


def _run(script: Script, source: Path, launcher: Launcher, **environ: str) -> tuple[int, list[str]]:
    """The exit code and all lines of one run."""
    with Arena("third_party") as arena:
        copy = arena.folder / "copy"
        shutil.copytree(source, copy, ignore=shutil.ignore_patterns(".git", "*.png", "*.gif", "*.ipynb"))
        script.made(copy)
        words = tuple(word.replace("{folder}", str(arena.folder)) for word in script.words)
        job = Job(arena.job_id, "1", WORKERS, None, words, 0)
        around = arena.environment(OURS) | {"HF_HUB_OFFLINE": "1", "WANDB_MODE": "disabled"} | environ
        if script.paths:
            folders = [*(str(copy / path) for path in script.paths), around.get("PYTHONPATH", "")]
            around["PYTHONPATH"] = os.pathsep.join(filter(None, folders))
        process = arena.start(command(launcher, job, 0, arena.folder), around, "node0.log", copy / script.folder)
        with contextlib.suppress(DidNotCome):
            arena.ended(process, BOUND)
        code = process.poll()
        return (124 if code is None else code), arena.logs()[0].splitlines()


def examine(script: Script, checkouts: Path | None) -> Found:
    """Runs it three times: explained, spawned, and as anybody would."""
    source = OWN if not script.checkout or checkouts is None else checkouts / script.checkout
    explained = [line.removeprefix("[elastic-run] ") for line in _run(script, source, EXPLAINED)[1]]
    spawned = _run(script, source, SPAWNED, PYTHONPROFILEIMPORTTIME="1")[1]
    whole = len({found[1] for line in spawned if (found := _IMPORTED.search(line))})
    code, lines = _run(script, source, OURS)
    end = f"exit code {code}: {_last(lines)}" if code else "to its end"
    if not code and any(_NO_GPU.search(line) for line in lines):
        end = "until it found too few GPUs"
    fresh = [line for line in lines if "rank" not in line and _FRESH.search(line)]
    counted = next((int(found[1]) for line in explained if (found := _COUNTED.search(line))), 0)
    remarks = [line for line in explained if not line.startswith("  ") and not _COUNTED.search(line)]
    return Found(counted, whole, (*remarks, *fresh), end)


def _last(lines: Sequence[str]) -> str:
    """The script's own last word on its error."""
    errors = [line for line in lines if _ERROR.search(line)]
    return (errors or lines or ["nothing was printed"])[-1].split("] ")[-1].strip()[:100]


def table(found: Sequence[tuple[Script, Found | str]]) -> str:
    """As markdown: a row for each script, and the sum."""
    rows = ["| script | packages | imported ahead | warm | what the launcher says of the rest | the run |"]
    rows.append("| --- | --- | --- | --- | --- | --- |")
    ran = [(script, one) for script, one in found if isinstance(one, Found)]
    for script, one in found:
        packages = ", ".join(script.packages)
        if isinstance(one, str):
            rows.append(f"| {script.name} | {packages} | | | | left out: {one} |")
            continue
        remarks = "; ".join(one.remarks).replace("|", "\\|")
        ahead = f"{one.ahead} of {one.whole} modules"
        end = one.end.replace("|", "\\|")
        rows.append(f"| {script.name} | {packages} | {ahead} | {'yes' if one.warm else 'no'} | {remarks} | {end} |")
    warm = sum(one.warm for _, one in ran)
    rows.append(f"\nWarm, with more than half of its modules imported ahead: {warm} of {len(ran)} scripts.")
    return "\n".join(rows)


def main(argv: Sequence[str]) -> int:
    """Prints the table; 2 where no script can run."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.third_party",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        epilog="checkouts: " + ", ".join(f"DIR/{folder} of github.com/{name}" for folder, name in CHECKOUTS.items()),
    )
    parser.add_argument("names", nargs="*", metavar="NAME", help="only scripts whose name contains one of these")
    parser.add_argument("--checkouts", type=Path, metavar="DIR", help="the folder with the clones")
    parser.add_argument("--list", action="store_true", help="say which scripts can take part, and end")
    given = parser.parse_args(argv)
    wanted = [one for one in ALL if not given.names or any(name in one.name for name in given.names)]
    checkouts: Path | None = given.checkouts and given.checkouts.resolve()
    if given.list:
        for script in wanted:
            print(f"{script.name}: {missing(script, checkouts) or 'takes part'}")
        return 0
    adopt_orphans()
    found: list[tuple[Script, Found | str]] = []
    for script in wanted:
        one = missing(script, checkouts) or examine(script, checkouts)
        print(f"{script.name}: {one}", file=sys.stderr, flush=True)
        found.append((script, one))
    print(table(found))
    return 0 if any(isinstance(one, Found) for _, one in found) else 2


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
