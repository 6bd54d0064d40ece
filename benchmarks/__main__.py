"""The command line: `python -m benchmarks [NAME ...]`. Times what elastic-run does, beside its peers."""

import argparse
import dataclasses
import datetime
import importlib.util
import json
import signal
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import NoReturn

from . import table

ROUNDS = {
    "startup": 5,
    "worker_kill": 5,
    "node_kill": 3,
    "silent_node": 3,
    "membership": 3,
    "in_place": 3,
    "in_place_costs": 3,
    "memory_checkpoints": 5,
    "steady": 7,
    "memory": 3,
    "exit": 5,
    "goodput": 1,
    "rendezvous_scale": 3,
    "leases": 5,
    "ledger_size": 5,
    "slow_worker": 5,
    "records": 5,
    "lockstep_step": 10,
    "encryption": 5,
    "horovod": 3,
    "tensorflow": 3,
}
"""The rounds of each benchmark, chosen so that all together take some forty minutes on two cores."""

NEEDS = {"horovod": "sh tests/build_horovod.sh PYTHON", "tensorflow": "pip install tensorflow-cpu"}
"""What some of them need beside PyTorch, a package of the benchmark's own name, and how it is installed."""

QUICK_ROUNDS = 1
GOODPUT_MINUTES, QUICK_GOODPUT_MINUTES = 1.0, 0.75
"""How long each run of goodput is; in ten minutes it says more."""

RESULTS = Path(__file__).parent / "results"


@dataclass(frozen=True, slots=True)
class Wanted:
    """What was asked for.

    Attributes:
        names: the benchmarks, in order.
        rounds: of each; None for its own number.
        quick: once each, without launchers that wait for long.
        minutes: no run begins later.
        goodput_minutes: how long each run of that benchmark is.
        nodes: how many agents rendezvous_scale has; empty: its own numbers.
        json, markdown: the files to write, if any.
        pictures: the folder for them, if any.
        keep: the folder for logs and journals, if any.
    """

    names: tuple[str, ...]
    rounds: int | None
    quick: bool
    minutes: float
    goodput_minutes: float
    nodes: tuple[int, ...]
    json: Path | None
    markdown: Path | None
    pictures: Path | None
    keep: Path | None


def main(argv: Sequence[str]) -> int:
    """Runs the benchmarks and prints their tables; 130 after Ctrl-C, 2 where it cannot begin."""
    wanted = _parse(argv)
    for module, install in (("elastic_run", "pip install -e ."), ("torch", "pip install torch")):
        if importlib.util.find_spec(module) is None:
            return _refuse(f"{sys.executable} cannot import {module}: {install}")
    absent = [name for name in wanted.names if name in NEEDS and importlib.util.find_spec(name) is None]
    for name in absent:
        _say(f"{name} is left out: {sys.executable} cannot import it: {NEEDS[name]}")
    wanted = dataclasses.replace(wanted, names=tuple(name for name in wanted.names if name not in absent))
    signal.signal(signal.SIGTERM, _terminate)
    try:
        return _run(wanted)
    except KeyboardInterrupt:
        print("interrupted: all processes of the run have been killed", file=sys.stderr)
        return 130


def _run(wanted: Wanted) -> int:
    # Here, because they import elastic_run, and its absence is to be told in a sentence.
    from . import contest, dlrover, goodput, hardware, pictures, recovery, rendezvous_scale, report, summary
    from .arena import adopt_orphans
    from .case import Case

    cases: dict[str, tuple[Case, ...]] = {
        name: importlib.import_module(f".{name}", __package__).CASES for name in wanted.names
    }
    if "goodput" in cases:
        cases["goodput"] = goodput.cases(wanted.goodput_minutes)
    if wanted.nodes:
        cases["rendezvous_scale"] = tuple(map(rendezvous_scale.case, wanted.nodes))
    if wanted.markdown:
        try:  # a missing marker is found now, not after ten minutes
            document = wanted.markdown.read_text(encoding="utf-8")
            names = {table.MACHINES, *(case.name for name in wanted.names for case in cases[name])}
            table.replaced(document, dict.fromkeys(names, ""))
        except (OSError, ValueError) as error:
            return _refuse(f"{wanted.markdown}: {error}")
    facts = hardware.facts()
    _say(hardware.sentence(facts))
    adopt_orphans()
    deadline = time.monotonic() + wanted.minutes * 60
    results: list[contest.Result] = []
    for name in wanted.names:
        rounds = wanted.rounds or (QUICK_ROUNDS if wanted.quick else ROUNDS[name])
        for case in cases[name]:
            if wanted.quick:
                case = dataclasses.replace(case, peers=tuple(one for one in case.peers if not one.slow))
            if set(dlrover.PEERS) & set(case.peers) and (problem := dlrover.problem()):
                _say(problem)
                case = dataclasses.replace(case, peers=tuple(one for one in case.peers if one not in dlrover.PEERS))
            result = contest.run(case, rounds, deadline=deadline, keep=wanted.keep, say=_say)
            results.append(result)
            _say(f"\n{report.text(result)}\n")
            if wanted.markdown and result.ours.seconds:
                again = f"python -m benchmarks {name} -n {rounds}" + (" --quick" if wanted.quick else "")
                if name == "goodput":
                    again += f" --goodput-minutes {wanted.goodput_minutes:g}"
                if name == "rendezvous_scale" and wanted.nodes:
                    again += f" --nodes {' '.join(map(str, wanted.nodes))}"
                document = wanted.markdown.read_text(encoding="utf-8")  # somebody may have written in it meanwhile
                machine, document = table.machine(document, hardware.sentence(facts))
                document = table.replaced(document, {case.name: report.markdown(result, again, machine)})
                wanted.markdown.write_text(document, encoding="utf-8")
                reader = wanted.markdown.with_name("performance.md")
                if reader.exists():  # the page whose rows are copied from this one
                    reader.write_text(summary.rewritten(reader.read_text(encoding="utf-8"), document), encoding="utf-8")
            if wanted.pictures and result.ours.seconds:
                wanted.pictures.mkdir(parents=True, exist_ok=True)
                (wanted.pictures / f"{case.name}.svg").write_text(pictures.bars(result), encoding="utf-8")
    if wanted.pictures and recovery.OF in wanted.names:
        _say(recovery.draw(wanted.pictures, wanted.keep))
    if wanted.json:
        wanted.json.parent.mkdir(parents=True, exist_ok=True)
        everything = {"version": 1, "machine": facts, "cases": [report.raw(result) for result in results]}
        wanted.json.write_text(json.dumps(everything, indent=2) + "\n", encoding="utf-8")
        _say(f"written: {wanted.json}")
    return 0


def _parse(argv: Sequence[str]) -> Wanted:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"one or more of {', '.join(ROUNDS)} (default: all)")
    parser.add_argument("-n", type=int, metavar="ROUNDS", help="runs of each launcher, instead of its own number")
    parser.add_argument("--quick", action="store_true", help="one run each, without launchers that wait for long")
    parser.add_argument("--minutes", type=float, default=60.0, help="no run begins later (default: 60)")
    parser.add_argument(
        "--goodput-minutes", type=float, metavar="MINUTES", help="of each run of goodput (default: 1; the real one: 10)"
    )
    parser.add_argument(
        "--nodes", type=int, nargs="+", default=[], metavar="N", help="agents of rendezvous_scale (at most 10000)"
    )
    stamp = datetime.datetime.now(datetime.UTC).strftime("%Y%m%d-%H%M%S")
    parser.add_argument(
        "--json",
        type=Path,
        nargs="?",
        const=RESULTS / f"{stamp}.json",
        help="write every run (to benchmarks/results/)",
    )
    parser.add_argument(
        "--markdown",
        type=Path,
        metavar="FILE",
        help="rewrite the marked sections of a document, and the rows that performance.md beside it has of them",
    )
    parser.add_argument("--pictures", type=Path, metavar="FOLDER", help="draw a bar chart of each, and one recovery")
    parser.add_argument("--keep", type=Path, metavar="FOLDER", help="leave logs and journals there (a new folder)")
    given = parser.parse_args(argv)
    names = tuple(name.replace("-", "_") for name in given.names) or tuple(ROUNDS)
    unknown = [name for name in names if name not in ROUNDS]
    if unknown:
        parser.error(f"there is no benchmark {', '.join(unknown)}: choose from {', '.join(ROUNDS)}")
    goodput = given.goodput_minutes
    if goodput is None:
        goodput = QUICK_GOODPUT_MINUTES if given.quick else GOODPUT_MINUTES
    if (given.n is not None and given.n < 1) or given.minutes <= 0 or goodput <= 0:
        parser.error("-n, --minutes and --goodput-minutes take a number above 0")
    if given.nodes and ("rendezvous_scale" not in names or not all(4 <= nodes <= 10_000 for nodes in given.nodes)):
        parser.error("--nodes takes numbers from 4 to 10000, and is for rendezvous_scale")
    return Wanted(
        names,
        given.n,
        given.quick,
        given.minutes,
        goodput,
        tuple(given.nodes),
        given.json,
        given.markdown,
        given.pictures,
        given.keep,
    )


def _terminate(number: int, frame: FrameType | None) -> NoReturn:
    raise SystemExit(128 + number)  # through every `finally`, which kill what runs


def _refuse(sentence: str) -> int:
    print(f"benchmarks: {sentence}", file=sys.stderr)
    return 2


def _say(line: str) -> None:
    print(line, flush=True)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
