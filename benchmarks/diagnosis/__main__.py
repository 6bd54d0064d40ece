"""Runs the corpus and prints its matrix: see the package."""

import argparse
import asyncio
import json
import socket
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import asdict, fields
from pathlib import Path

from ..arena import adopt_orphans
from .corpus import FAULTS, INNOCENT, Draw, draws
from .score import Scored, is_right, lines
from .trial import Outcome, lacks, run


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.diagnosis", description=__doc__)
    parser.add_argument("-n", type=int, default=len(FAULTS) + len(INNOCENT), help="how many runs")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--kinds", default="", help="names of faults, with commas; all where it is left out")
    parser.add_argument("--parallel", type=int, default=2, help="runs at the same time")
    parser.add_argument("--seconds", type=float, default=float("inf"), help="no run is begun after so many")
    parser.add_argument("--json", type=Path, help="also write each run to this file")
    parser.add_argument("--add", type=Path, nargs="*", default=[], help="files of --json whose runs are counted, too")
    given = parser.parse_args()
    names = [name for name in given.kinds.split(",") if name]
    known = {each.name for each in (*FAULTS, *INNOCENT)}
    if unknown := set(names) - known:
        parser.error(f"no such fault: {', '.join(sorted(unknown))}; there are {', '.join(sorted(known))}")
    adopt_orphans()
    able = list[str]()
    for each in (*FAULTS, *INNOCENT):
        if names and each.name not in names:
            continue
        if why := lacks(each):
            print(f"not injected: {each.label}: {why}", file=sys.stderr)
        else:
            able.append(each.name)
    earlier = [each for file in given.add for each in read(file)]
    scored = asyncio.run(_all(draws(given.n, given.seed, able), given.parallel, given.seconds))
    if given.json:
        given.json.write_text("".join(f"{json.dumps(_row(*each))}\n" for each in scored))
    print("\n".join(lines([*earlier, *scored])))


def _row(draw: Draw, outcome: Outcome) -> dict[str, object]:
    return {**asdict(draw), "fault": draw.fault.name, **asdict(outcome)}


def read(file: Path) -> Iterator[Scored]:
    """The runs that --json has written there."""
    faults = {each.name: each for each in (*FAULTS, *INNOCENT)}
    for line in file.read_text().splitlines():
        row = json.loads(line)
        row["fault"] = faults[row["fault"]]
        drawn, came = ({each.name: row[each.name] for each in fields(kind)} for kind in (Draw, Outcome))
        yield Draw(**drawn), Outcome(**came)


async def _all(drawn: list[Draw], parallel: int, seconds: float) -> list[Scored]:
    few, scored, until = asyncio.Semaphore(parallel), list[Scored](), time.monotonic() + seconds
    with _silent_server() as server:
        port: int = server.getsockname()[1]

        async def one(draw: Draw) -> None:
            async with few:
                if time.monotonic() > until:
                    return
                outcome = await run(draw, port)
                scored.append((draw, outcome))
                _tell(len(scored), len(drawn), draw, outcome)

        async with asyncio.TaskGroup() as group:
            for draw in drawn:
                group.create_task(one(draw))
    return scored


def _tell(done: int, of: int, draw: Draw, outcome: Outcome) -> None:
    mark = "not counted" if not outcome.valid else "right" if is_right(draw, outcome) else "WRONG"
    late = "" if outcome.seconds is None else f", {outcome.seconds:.2f} s"
    how = "gloo" if draw.gloo else "sockets"
    what = f"{draw.fault.name} in rank {draw.rank} of {draw.world} on {draw.agents} by {how}, step {draw.step}"
    print(f"{done}/{of} {mark}: {what}: {outcome.words or 'nothing'}{late}", file=sys.stderr, flush=True)


def _silent_server() -> socket.socket:
    """Accepts whoever comes, and says nothing."""
    server = socket.create_server(("127.0.0.1", 0), backlog=1024)
    held = list[socket.socket]()

    def accept() -> None:
        try:
            while True:
                held.append(server.accept()[0])
        except OSError:
            return  # closed: the runs are over

    threading.Thread(target=accept, daemon=True).start()
    return server


if __name__ == "__main__":
    main()
