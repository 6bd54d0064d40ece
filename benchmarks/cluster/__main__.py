"""The command line: `python -m benchmarks.cluster [NAME ...]`. Prints figures, and draws pictures."""

import argparse
import dataclasses
import sys
from collections.abc import Sequence
from pathlib import Path

from . import areas, beside_a_service, day, real, two_jobs
from .times import Times

SIMULATED = ("two_jobs", "beside_a_service", "day")
NAMES = (*SIMULATED, "honest", "gives_way")

REAL = "real: Kubernetes 1.20, etcd, elastic-job submit, and pods that are processes of one machine"
FOOT = "simulated: real controllers, node managers and agents' plans; a double of the scheduler, on a virtual clock"


def main(argv: Sequence[str]) -> int:
    """Runs the experiments; 2 where there is none of that name."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.cluster", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"of {', '.join(NAMES)} (default: the first three)")
    parser.add_argument("--pictures", type=Path, metavar="FOLDER", help="draw a picture of each there")
    parser.add_argument("--seed", type=int, default=1, help="of the day's jobs (default: 1)")
    given = parser.parse_args(argv)
    names = tuple(name.replace("-", "_") for name in given.names) or SIMULATED
    if unknown := [name for name in names if name not in NAMES]:
        parser.error(f"there is no experiment {', '.join(unknown)}: choose from {', '.join(NAMES)}")
    if set(names) & set(SIMULATED):
        print(_times(Times()))
    for name in names:
        picture = ""
        match name:
            case "two_jobs":
                found = [two_jobs.ran(case) for case in two_jobs.cases()]
                print(_table(two_jobs.HEAD, two_jobs.rows(found)))
                picture = areas.draw("Two jobs on 320 CPUs", two_jobs.panels(found), FOOT)
            case "beside_a_service":
                beside = beside_a_service.ran()
                print(_table(beside_a_service.HEAD, [beside_a_service.row(beside)]))
                title = "Training beside an online service, on 320 CPUs"
                picture = areas.draw(title, beside_a_service.panels(beside), FOOT, unit="min", per_unit=60.0)
            case "honest" | "gives_way" if why := real.missing():
                print(f"{name}: {why}", file=sys.stderr)
                return 2
            case "honest":
                truth, times, submitted = real.real()
                print(_times(times, "in the real run, and so in the simulated one"))
                print(_table(real.HEAD, real.rows(truth, real.simulated(times, submitted))))
            case "gives_way":
                panels, waits = real.gives_way()
                print(f"pods of the service waited for {', '.join(f'{each:.1f}' for each in sorted(waits))} s\n")
                picture = areas.draw("A job that gives way and grows back", panels, REAL)
            case _:
                whole = day.ran(seed=given.seed)
                print(_table(day.HEAD, [day.row(whole)]))
                print(_table(day.WAITS_HEAD, day.waits(whole)))
                title = "CPUs that train, in a day of jobs with priorities"
                picture = areas.draw(title, day.panels(whole), FOOT, unit="h", per_unit=3600.0)
        if given.pictures and picture:
            given.pictures.mkdir(parents=True, exist_ok=True)
            (given.pictures / f"cluster_{name}.svg").write_text(picture, encoding="utf-8")
    return 0


def _times(times: Times, where: str = "here (benchmarks/cluster/times.py)") -> str:
    each = (f"{field.name} {getattr(times, field.name):.3g}" for field in dataclasses.fields(times))
    return f"seconds that things take {where}: {', '.join(each)}\n"


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
