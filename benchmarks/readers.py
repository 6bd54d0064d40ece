"""`python -m benchmarks.readers`: indexes of CSV files beside `wc -l`; reads beside pyarrow and Python's csv module.

Each in turn, in one run, of files that were read before. Two files of CSV: one without quotes, and one whose texts are
quoted, some with line ends, and as many records in Parquet. On one core, and on all, where `wc` counts as many parts at
once as there are cores. "numpy" is the same count without compiled code. Both sides of a pair are made one after the
other; what is printed are medians, with the least and the most.
"""

import argparse
import csv
import os
import random
import statistics
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet

from elastic_run import data
from elastic_run.adapters.readers.csv_index import BUFFER, LEAD, Indexed, buffers, indexes_of
from elastic_run.adapters.readers.found_files import known

SHARD = 4096
GROUP = 100_000
"""Records in a shard, and in a row group of Parquet."""


def make_files(folder: Path, size: int, parts: int) -> dict[str, list[Path]]:
    """Writes `parts` files of each kind, of `size` bytes in all; Parquet has the records of one of CSV."""
    draw = random.Random(1)
    files: dict[str, list[Path]] = {}
    for name in ("plain", "quoted"):
        lines: list[str] = []
        for number in range(20_000):
            text = "".join(draw.choices("abcdefghijkl mnop", k=draw.randint(10, 60)))
            if name == "quoted":
                text = f'"{text}{", and a comma" * (number % 7 == 0)}' + "\n a line" * (number % 11 == 0) + '"'
            lines.append(f"{draw.randint(1, 10**9)},{draw.random():.6f},{text},2026-11-27T10:00:00,{number % 100}\n")
        block = "".join(lines).encode()
        files[name] = [folder / f"{name}-{part}.csv" for part in range(parts)]
        for path in files[name]:
            with path.open("wb") as file:
                file.write(b"user,price,title,time,n\n")
                for _ in range(max(1, size // parts // len(block))):
                    file.write(block)
    table = pyarrow.csv.read_csv(files["plain"][0])
    files["parquet"] = [folder / "plain.parquet"]
    pyarrow.parquet.write_table(table, files["parquet"][0], row_group_size=GROUP)
    return files


def costs(work: Callable[[], Any]) -> tuple[float, float]:
    """Seconds: of time, and of processors, its child processes' among them."""

    def used() -> float:
        return sum(os.times()[:4])

    begun, before = time.perf_counter(), used()
    work()
    return time.perf_counter() - begun, max(used() - before, 0.01)


def pairs(rounds: int, mine: Callable[[], Any], theirs: Callable[[], Any]) -> list[tuple[float, float, float, float]]:
    """Of each round: what ours costs, and the other."""
    return [(*costs(mine), *costs(theirs)) for _ in range(rounds)]


def count_lines(paths: Iterable[Path]) -> None:
    """`wc -l`, one process for each path."""
    running = [subprocess.Popen(["wc", "-l", path], stdout=subprocess.DEVNULL) for path in paths]
    for each in running:
        each.wait()


def index_files(paths: Iterable[Path]) -> None:
    """A new index of each file, which is not kept."""
    wanted = [Indexed(known(str(path)), 24, ord(",")) for path in paths]
    for path in paths:
        path.with_name(f".{path.name}.elastic-run-index").unlink(missing_ok=True)
    indexes_of(wanted)


def count_by_numpy(paths: Iterable[Path]) -> None:
    """The ends of records outside of quotes, by array operations."""
    for path in paths:
        for array, _ in buffers(path, 0, path.stat().st_size):
            block = array[LEAD : LEAD + BUFFER]
            quotes = block == ord('"')
            ends = block == ord("\n")
            if quotes.any():
                ends &= np.logical_xor.accumulate(quotes) == 0
            np.count_nonzero(ends)


def read_by_csv(path: Path, count: int) -> None:
    """The first records and their columns, by Python's csv module."""
    with path.open(newline="") as file:
        rows = csv.reader(file)
        next(rows)
        for _ in range(0, count, SHARD):
            users, prices, titles, times, numbers = zip(*(next(rows) for _ in range(SHARD)), strict=True)
            (np.array(list(map(int, users))), np.array(list(map(float, prices))), titles, times)
            np.array(list(map(int, numbers)))


def read_shards(opened: data.RecordFiles, count: int) -> None:
    """The first records, in shards, each in an order of its own."""
    draw = random.Random(0)
    for first in range(0, count, SHARD):
        indices = list(range(first, first + SHARD))
        draw.shuffle(indices)
        opened.read(indices)


def read_by_pyarrow(path: Path, count: int) -> None:
    """The same of Parquet, with what pyarrow offers: a row group, and records taken from it."""
    draw = random.Random(0)
    file, number, group = pyarrow.parquet.ParquetFile(path), -1, None
    for first in range(0, count, SHARD):
        if first // GROUP != number:
            number = first // GROUP
            group = file.read_row_group(number)
        indices = [index - number * GROUP for index in range(first, min(first + SHARD, (number + 1) * GROUP))]
        draw.shuffle(indices)
        assert group is not None
        taken = group.take(pa.array(indices))
        [column.to_pylist() if column.type == pa.string() else column.to_numpy() for column in taken.columns]


def read_randomly(opened: data.RecordFiles, count: int) -> None:
    """Single records, of the first million."""
    draw, size = random.Random(0), min(len(opened), 10**6)
    for _ in range(count):
        opened.read([draw.randrange(size)])


def show(what: str, unit: str, amount: float, other: str, rounds: list[tuple[float, float, float, float]]) -> None:
    """Prints two lines: `amount` over the seconds of time, and of processors."""

    def spread(values: Iterable[float]) -> str:
        found = sorted(values)
        return f"{statistics.median(found):.3g} ({found[0]:.3g} to {found[-1]:.3g})"

    for place, of in enumerate(("time", "processors")):
        mine, theirs = ([amount / each[place + 2 * side] for each in rounds] for side in range(2))
        ratios = (here / there for here, there in zip(mine, theirs, strict=True))
        words = f"{spread(mine)} {unit}; {other} {spread(theirs)}; ratio {spread(ratios)}"
        print(f"{what}, a second of {of}: {words}", flush=True)


def show_indexes(name: str, paths: list[Path], rounds: int, cores: list[int]) -> None:
    """Indexes on one core, of one part, and on all, of all parts."""
    for allowed, some in ((cores[:1], paths[:1]), (cores, paths)):
        os.sched_setaffinity(0, allowed)
        size, on = sum(path.stat().st_size for path in some) / 1e9, f"{len(allowed)} of {len(cores)} cores"
        count_lines(some)
        found = pairs(rounds, partial(index_files, some), partial(count_lines, some))
        show(f"index, {name}, {on}", "GB", size, "wc -l", found)
    os.sched_setaffinity(0, cores[:1])
    size = paths[0].stat().st_size / 1e9
    found = pairs(rounds, partial(count_by_numpy, paths[:1]), partial(count_lines, paths[:1]))
    show(f"by numpy, {name}, 1 of {len(cores)} cores", "GB", size, "wc -l", found)
    os.sched_setaffinity(0, cores)


def show_reads(path: Path, other: str, work: Callable[[Path, int], None], rounds: int) -> None:
    """Records in shards, and single ones."""
    opened, count = data.open(path), 50 * SHARD
    found = pairs(rounds, partial(read_shards, opened, count), partial(work, path, count))
    show(f"shards, {path.suffix}", "million records", count / 1e6, other, found)
    read_randomly(opened, 1000)
    passed, used = costs(partial(read_randomly, opened, 5000))
    print(f"random record, {path.suffix}: {passed * 200:.0f} us, {used * 200:.0f} us of a processor", flush=True)


def main() -> None:
    """The command."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("-n", type=int, default=5, help="rounds")
    parser.add_argument("--megabytes", type=int, default=1000)
    parser.add_argument("--folder", help="where the files are made and removed; the fastest: /dev/shm")
    options = parser.parse_args()
    cores = sorted(os.sched_getaffinity(0))
    with tempfile.TemporaryDirectory(dir=options.folder) as folder:
        files = make_files(Path(folder), options.megabytes * 10**6, len(cores))
        index_files(files["plain"])  # compiles
        print(f"load {os.getloadavg()[0]:.1f}; median (least to most) of {options.n} rounds", flush=True)
        for name in ("plain", "quoted"):
            show_indexes(name, files[name], options.n, cores)
        show_reads(files["plain"][0], "csv module", read_by_csv, options.n)
        show_reads(files["parquet"][0], "pyarrow", read_by_pyarrow, options.n)


if __name__ == "__main__":
    main()
