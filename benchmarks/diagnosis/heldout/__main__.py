"""Runs the held-out half of the corpus once, and prints what was named: see the README beside it.

    python -m benchmarks.diagnosis.heldout [--moved] [--without-stacks] [--cases NAME,...] [--parallel 2] [--json FILE]

A rank is *named* where it is told on certain or strong evidence; that is also what `--on-hang` would act upon. Weak
findings that name a rank have a column of their own.
"""

import argparse
import asyncio
import contextlib
import json
import os
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ...arena import adopt_orphans
from ..trial import end_launcher, read_findings
from .cases import CASES, MOVED, HeldOutCase

HANG_TIMEOUT = 4.0
"""Seconds, of the launcher."""

PATIENCE = 45.0
"""Seconds after a fault stands still, until it counts as missed."""

STARTS = 60.0
"""Seconds for torch to be imported on a busy machine."""


@dataclass(frozen=True, slots=True)
class Trial:
    """What came of one case.

    Attributes:
        named, weak: the first finding of a rank on certain or strong evidence, and on weak evidence; empty: none.
        told: the line that accuses nobody, where it was printed.
        ended: the launcher's exit code; None: it was stopped.
        load: of the machine, at the end.
    """

    case: HeldOutCase
    named: dict[str, Any]
    weak: dict[str, Any]
    told: str
    ended: int | None
    load: float

    @property
    def right(self) -> bool:
        """One of the culprits is named; of an innocent, nobody."""
        return self.named.get("rank") in self.case.culprits if self.case.culprits else not self.named


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.diagnosis.heldout", description=__doc__)
    parser.add_argument("--cases", default="", help="names, with commas; all where it is left out")
    parser.add_argument(
        "--moved", action="store_true", help="those whose result led to a change of a rule, and no others"
    )
    parser.add_argument("--without-stacks", action="store_true", help="as where py-spy is not installed")
    parser.add_argument("--parallel", type=int, default=2, help="runs at the same time")
    parser.add_argument("--json", type=Path, help="also write each run to this file")
    given = parser.parse_args()
    names = [name for name in given.cases.split(",") if name]
    if unknown := set(names) - {each.name for each in CASES}:
        parser.error(f"no such case: {', '.join(sorted(unknown))}")
    adopt_orphans()
    chosen = [each for each in CASES if (each.name in names if names else (each.name in MOVED) == given.moved)]
    with tempfile.TemporaryDirectory(prefix="elastic-run-heldout_", ignore_cleanup_errors=True) as folder:
        python = _without_py_spy(Path(folder)) if given.without_stacks else sys.executable
        trials = asyncio.run(run_all(chosen, python, Path(folder), given.parallel))
    if given.json:
        rows = ({**_row(each), "date": time.strftime("%Y-%m-%d")} for each in trials)
        given.json.write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    print("\n".join(summary(trials)))


def summary(trials: Sequence[Trial]) -> list[str]:
    """The figures, in words."""
    faults = [each for each in trials if each.case.culprits]
    innocents = [each for each in trials if not each.case.culprits]
    named = [each for each in trials if each.named]
    right = [each for each in faults if each.right]
    loads = sorted(each.load for each in trials)
    return [
        f"{len(faults)} faults: {len(right)} right, {sum(bool(each.named) for each in faults) - len(right)} wrong, "
        f"{sum(not each.named for each in faults)} not named",
        f"{len(innocents)} innocents: {sum(bool(each.named) for each in innocents)} named, "
        f"{sum(bool(each.weak) and not each.named for each in innocents)} named on weak evidence only",
        f"precision {len(right)} of {len(named)}, recall {len(right)} of {len(faults)}, "
        f"at a load of {loads[0]:.0f} to {loads[-1]:.0f}",
    ]


async def run_all(chosen: Sequence[HeldOutCase], python: str, folder: Path, parallel: int) -> list[Trial]:
    """Runs the cases, so many at the same time, and prints what came of each."""
    few, done = asyncio.Semaphore(parallel), list[Trial]()

    async def one(case: HeldOutCase) -> None:
        async with few:
            trial = await run(case, python, folder)
        done.append(trial)
        mark = "right" if trial.right else "MISSED" if not trial.named else "WRONG"
        found = trial.named.get("reason") or trial.told or "nothing"
        print(f"{len(done)}/{len(chosen)} {mark} {case.kind} {case.name}: {found}", file=sys.stderr, flush=True)

    async with asyncio.TaskGroup() as group:
        for case in chosen:
            group.create_task(one(case))
    return done


async def run(case: HeldOutCase, python: str, folder: Path) -> Trial:
    """Runs it until a rank is named, it ends, or it is late."""
    trace, log = folder / f"{case.name}.trace", folder / f"{case.name}.log"
    command = [python, "-m", "elastic_run", "--standalone", f"--nproc-per-node={case.ranks}", "--max-restarts=0"]
    command += [f"--hang-timeout={HANG_TIMEOUT:g}", f"--trace={trace}", *case.words(python)]
    path = os.pathsep.join(
        each for each in os.environ["PATH"].split(os.pathsep) if each != str(Path(sys.executable).parent)
    )
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "TMPDIR": str(folder), "PATH": path}
    begun = time.monotonic()
    with log.open("wb") as output:
        process = await asyncio.create_subprocess_exec(
            *command,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            env=environment,
            start_new_session=True,
        )
        try:
            named, weak, told = dict[str, Any](), dict[str, Any](), ""
            limit = STARTS + case.seconds + PATIENCE
            while time.monotonic() < begun + limit:
                over = process.returncode is not None
                for _, found in read_findings(trace):
                    if found.get("kind") == "standstill":
                        told = told or str(found["reason"])
                    elif found.get("rank") is not None and found["strength"] == "weak":
                        weak = weak or found
                    elif found.get("rank") is not None:
                        named = named or found
                if over or named:
                    break
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(0.25):
                        await process.wait()
            return Trial(case, named, weak, told, process.returncode, os.getloadavg()[0])
        finally:
            await end_launcher(process)


def _row(trial: Trial) -> dict[str, object]:
    return {
        "case": trial.case.name,
        "kind": trial.case.kind,
        "culprits": sorted(trial.case.culprits),
        "right": trial.right,
        "named": trial.named,
        "weak": trial.weak,
        "told": trial.told,
        "ended": trial.ended,
        "load": trial.load,
    }


def _without_py_spy(folder: Path) -> str:
    """The same interpreter with the same packages, where no py-spy lies beside it."""
    here = folder / "bare"
    (here / "bin").mkdir(parents=True)
    (here / "lib").symlink_to(Path(sys.prefix) / "lib")
    (here / "bin" / "python").symlink_to(Path(sys.executable).resolve())
    (here / "pyvenv.cfg").write_text((Path(sys.prefix) / "pyvenv.cfg").read_text())
    return str(here / "bin" / "python")


if __name__ == "__main__":
    main()
