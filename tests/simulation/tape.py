"""python -m tests.simulation.tape: all that the deciders decide in many schedules, to compare two trees of the product.

    python -m tests.simulation.tape > before             a line for each schedule: how many decisions, and their digest
    python -m tests.simulation.tape --seeds 0:500        so many of each kind (the default is 0:500)
    python -m tests.simulation.tape --one "roles 17"     one schedule, with every decision

Where only names have changed, the lines of two trees are the same: the simulator is deterministic, so a decision that
differs makes all that follows another run. What is given to a decider is not compared, for its form may change.
"""

import argparse
import asyncio
import hashlib
import os
import re
import sys
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from typing import Any

from .explore import attempt
from .kinds import DRAWS, schedule_of
from .seams import Seam

DECIDERS = (
    "elastic_agent.machine.plan.act",
    "elastic_agent.machine.plan.report",
    "master.machine.controller.Controller.on",
)

_ADDRESS = re.compile(r" at 0x[0-9a-f]+")


def record_decisions(name: str) -> list[str]:
    """Lives a schedule (see `schedule_of`); each decision with its virtual second. The deciders are wrapped."""
    _TAPE.clear()
    seen = attempt(schedule_of(name))
    if isinstance(seen, str):
        _TAPE.append(seen)
    return list(_TAPE)


_TAPE: list[str] = []


def _wrap_deciders() -> None:
    for name in DECIDERS:
        Seam(name, _recording(name.rpartition(".")[2])).plant()


def _recording(name: str) -> Callable[..., Any]:
    def record(real: Callable[..., Any], *args: Any, **keywords: Any) -> Any:
        answer = real(*args, **keywords)
        _TAPE.append(f"{asyncio.get_running_loop().time():.6f} {name}: {_ADDRESS.sub('', repr(answer))}")
        return answer

    return record


def _line(name: str) -> str:
    decisions = record_decisions(name)
    digest = hashlib.sha256("\n".join(decisions).encode()).hexdigest()[:16]
    return f"{name} {len(decisions)} {digest}"


def _names(seeds: Sequence[int]) -> Iterator[str]:
    return (f"{kind} {seed}" for kind in DRAWS for seed in seeds)


def main() -> int:
    """See the module."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.simulation.tape",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--seeds", default="0:500", help=argparse.SUPPRESS)
    parser.add_argument("--one", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if os.environ.get("PYTHONHASHSEED") != "0":  # sets are written in their order
        os.execve(sys.executable, sys.orig_argv, {**os.environ, "PYTHONHASHSEED": "0"})
    if arguments.one:
        _wrap_deciders()
        print("\n".join(record_decisions(arguments.one)))
        return 0
    first, _, last = arguments.seeds.partition(":")
    with ProcessPoolExecutor(initializer=_wrap_deciders) as pool:
        for line in pool.map(_line, _names(range(int(first), int(last))), chunksize=20):
            print(line, flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
