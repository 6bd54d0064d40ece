"""How well a job sizes itself: jobs of several kinds, whose laws are drawn anew and unknown to the planner.

    python -m benchmarks.resources [--seeds N] [--kinds tuned|unseen|all] [--restart] [--say KIND:SEED]

Each job begins with one node and may have 16. Real controllers and node managers on a virtual clock, as in
`benchmarks/cluster/`. What is compared with is the best number of nodes by the law itself: an exhaustive sweep without
noise.
"""

import argparse
import random
import statistics
import sys
from collections.abc import Mapping, Sequence

from .cluster.laws import TUNED, UNSEEN, Kind
from .cluster.sized_job import Outcome, simulate

MOST = 16
HEAD = (
    "kind",
    "jobs",
    "reach 95 %",
    "worst share",
    "median share",
    "spend under 5 %",
    "most spent",
    "reached after, s",
    "changes",
)


def outcomes(name: str, kind: Kind, seeds: Sequence[int], *, stays: bool, seconds: float) -> list[Outcome]:
    """One for each seed."""
    return [
        simulate(
            kind(random.Random(f"{name} {seed}")), seed=seed, plan="goodput", most=MOST, seconds=seconds, stays=stays
        )
        for seed in seeds
    ]


def row(name: str, found: Sequence[Outcome]) -> tuple[str, ...]:
    """A kind's line."""
    shares = [each.share for each in found]
    reached = [each.reached for each in found if each.reached is not None]
    return (
        name,
        str(len(found)),
        str(len(reached)),
        f"{100 * min(shares):.1f}%",
        f"{100 * statistics.median(shares):.1f}%",
        str(sum(each.spent < 0.05 for each in found)),
        f"{100 * max(each.spent for each in found):.1f}%",
        f"{statistics.median(reached):.0f} ({max(reached):.0f})" if reached else "-",
        f"{statistics.mean(each.looks for each in found):.1f}",
    )


def main(argv: Sequence[str]) -> int:
    """Prints a table."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.resources", description=__doc__)
    parser.add_argument("--seeds", type=int, default=50, help="jobs of each kind (default: 50)")
    parser.add_argument("--first", type=int, default=1, help="the first seed (default: 1)")
    parser.add_argument("--kinds", choices=("tuned", "unseen", "all"), default="all")
    parser.add_argument("--seconds", type=float, default=900.0, help="that each job trains (default: 900)")
    parser.add_argument("--restart", action="store_true", help="workers restart in each change")
    parser.add_argument("--say", metavar="KIND:SEED", default="", help="tell the story of one job")
    given = parser.parse_args(argv)
    kinds: Mapping[str, Kind] = {
        **(TUNED if given.kinds != "unseen" else {}),
        **(UNSEEN if given.kinds != "tuned" else {}),
    }
    if given.say:
        name, _, seed = given.say.partition(":")
        law = kinds[name](random.Random(f"{name} {seed}"))
        print(" ".join(f"{size}:{law.work(size):.1f}" for size in range(1, MOST + 1)), flush=True)
        print(
            simulate(
                law,
                seed=int(seed),
                plan="goodput",
                most=MOST,
                seconds=given.seconds,
                stays=not given.restart,
                say=print,
            )
        )
        return 0
    print(_line(HEAD), _line(["---"] * len(HEAD)), sep="\n")
    for name, kind in kinds.items():
        found = outcomes(
            name, kind, range(given.first, given.first + given.seeds), stays=not given.restart, seconds=given.seconds
        )
        print(_line(row(name, found)), flush=True)
    return 0


def _line(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
