"""python -m tests.simulation: explore schedules, or look at one.

--seeds 0:20000       explore these (the default is 0:2000), on --jobs processes
--soak [COUNT]        explore seeds that nobody has tried, COUNT of them or without end, until one breaks a rule
--seed 17             one, with its trace; --kind roles, alone, masters or services: of jobs with these
--schedule FILE       one that was written by hand
--shrink              with one of the two: the smallest schedule that breaks the same rule
--digest              with --seeds, here also as in 3,17,40: a fingerprint of each trace instead
"""

import argparse
import secrets
import sys
import time
from collections.abc import Iterable
from pathlib import Path

from .explore import Tale, attempt, digest, explain, rule_broken, shrink, tell_all
from .kinds import DRAWS
from .schedule import Schedule, Unreadable, parse

STRIDE = 2000
"""Seeds after which a soak says how far it is."""


def _show(schedule: Schedule) -> int:
    outcome = attempt(schedule)
    print(schedule.text)
    if isinstance(outcome, str):
        print(outcome)
        return 1
    print("\n".join(outcome.trace))
    print(f"\nthe job: {outcome.state or 'no round'}; faults that did something: {sum(outcome.faults.values())}")
    for violation in outcome.violations:
        print(f"BROKEN at {violation.at:.4f}: {violation.rule}: {violation.what}")
    return 1 if outcome.violations else 0


def _explore(seeds: range, jobs: int | None) -> int:
    began = time.perf_counter()
    tale = tell_all(seeds, jobs)
    print(tale.text)
    print(f"{time.perf_counter() - began:.0f} s")
    if tale.failures:
        print(f"\n{explain(tale)}")
    return 1 if tale.failures else 0


def _soak(count: int, jobs: int | None) -> int:
    """`count` new seeds; 0: no end."""
    start = secrets.randbelow(1 << 40)
    print(f"seeds {start}:{start + count if count else ''}, until one breaks a rule{'' if count else ' or Ctrl-C'}")
    tale = Tale()
    try:
        while not tale.failures and (not count or tale.schedules < count):
            first = start + tale.schedules
            tale.add(tell_all(range(first, min(first + STRIDE, start + count) if count else first + STRIDE), jobs, 1))
            print(tale.text, flush=True)
    except KeyboardInterrupt:
        print(f"stopped; none of {start}:{start + tale.schedules} broke a rule")
        return 130
    if tale.failures:
        print(f"\n{explain(tale)}")
    return 1 if tale.failures else 0


def _fingerprint(seeds: Iterable[int]) -> int:
    for seed in seeds:
        print(seed, digest(seed))
    return 0


def main() -> int:
    """See the module."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.simulation", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seeds", default="0:2000", help=argparse.SUPPRESS)
    parser.add_argument("--soak", type=int, nargs="?", const=0, help=argparse.SUPPRESS)
    parser.add_argument("--seed", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--kind", choices=DRAWS, default="plain", help=argparse.SUPPRESS)
    parser.add_argument("--schedule", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--shrink", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--digest", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--jobs", type=int, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    one = None
    if arguments.seed is not None:
        one = DRAWS[arguments.kind](arguments.seed)
    if arguments.schedule is not None:
        try:
            one = parse(arguments.schedule.read_text().partition("\n---\n")[0])  # stories are schedules, too
        except (OSError, Unreadable) as error:
            parser.error(f"{arguments.schedule}: {error}")
    if one is not None:
        if arguments.shrink and (broken := rule_broken(one)):
            one = shrink(one, broken[0])
        return _show(one)
    if arguments.soak is not None:
        return _soak(arguments.soak, arguments.jobs)
    first, between, last = arguments.seeds.partition(":")
    if arguments.digest and not between:
        return _fingerprint(map(int, first.split(",")))
    if not (first.isdigit() and last.isdigit()):
        parser.error(f"--seeds {arguments.seeds}: expected FIRST:LAST, as in 0:2000; the last is not tried")
    seeds = range(int(first), int(last))
    return _fingerprint(seeds) if arguments.digest else _explore(seeds, arguments.jobs)


if __name__ == "__main__":
    sys.exit(main())
