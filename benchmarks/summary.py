"""The rows of the benchmarks that a reader needs, out of the page that has all of them.

`docs/benchmarks.md` has every table; `docs/performance.md` has one row of some of them. The figures are copied, so that
the two pages cannot differ: `python -m benchmarks.summary` does that, and so does `--markdown`.
"""

from dataclasses import dataclass
from pathlib import Path

from . import table

HEADINGS = ("what happens", "compared with", "the other / elastic-run", "of the pairs", "elastic-run", "the other")


@dataclass(frozen=True, slots=True)
class Row:
    """One row of the summary.

    Attributes:
        what: what happens, for a reader.
        case: the section of the page of all tables.
        until: the first cell of the row there.
        peer: the second one.
        unit: behind each figure.
    """

    what: str
    case: str
    until: str
    peer: str
    unit: str = "s"


TORCHRUN, TUNED, DLROVER = "torchrun, noshare", "torchrun, noshare, tuned", "DLRover 0.6.1, in memory"
STEP = "next full step"

SUMMARIES = {
    "summary_faults": (
        Row("a worker of 2 is killed", "worker_kill", STEP, TORCHRUN),
        Row("the same", "worker_kill", STEP, "elastic-run, --start-method=spawn"),
        Row("a worker of 2 raises", "worker_raise", STEP, TORCHRUN),
        Row("the agent of one of 3 nodes is killed", "node_kill", STEP, TUNED),
        Row("the same", "node_kill", STEP, TORCHRUN),
        Row("the node that leads is killed", "master_kill", STEP, TUNED),
        Row("a node falls silent", "silent_node", STEP, TUNED),
        Row("a third node arrives", "arrival", STEP, TUNED),
        Row("one of 3 nodes is told to leave", "departure", STEP, TUNED),
        Row("in place: a worker of 2 is killed", "in_place_worker_kill", STEP, TORCHRUN),
        Row("in place: a worker on another node is killed", "in_place_peer_kill", STEP, TUNED),
        Row("Horovod: a worker of 2 is killed", "horovod_kill", "next step of 2",
            "horovodrun, --blacklist-cooldown-range 1 2"),
        Row("TensorFlow: a worker of 2 is killed", "tensorflow_kill", STEP, "a loop around each worker"),
    ),
    "summary_rest": (
        Row("start to the script's first line", "first_line", "user's first line", TORCHRUN),
        Row("start to the first step of DDP", "first_step", "first full step", TORCHRUN),
        Row("the same", "first_step", "first full step", "bare python, no launcher"),
        Row("the script's last line to the launcher's end", "exit", "launcher gone", TORCHRUN),
        Row("3,000 steps without a fault", "steady", "last step", TORCHRUN),
        Row("memory of the agent", "memory", "agent", TORCHRUN, "MiB"),
        Row("one minute of work, a worker killed each 20 s", "goodput", "end of the time", TORCHRUN, "h per h"),
        Row("100 nodes agree, all begin at once", "rendezvous_100", "all begin at once: all hold it", "torch c10d"),
        Row("9,600 leases by 16 clients", "leases_16", "last shard", DLROVER),
        Row("5,000 batches of 32 from the sampler", "lockstep_step_32", "last batch",
            "torch's DistributedSampler in a BatchSampler"),
        Row("60 steps of a model of 100 MB in place", "in_place_commit", "last step", "the same loop without"),
    ),
}  # fmt: skip
"""The sections of the reader's page, in order."""


def rewritten(page: str, tables: str) -> str:
    """The reader's page with the figures of the page of all tables.

    Raises ValueError where one of the two lacks a section, or the tables a row.
    """
    drawn = {name: table.markdown(HEADINGS, [_cells(row, tables) for row in rows]) for name, rows in SUMMARIES.items()}
    return table.replaced(page, drawn)


def _cells(row: Row, tables: str) -> tuple[str, ...]:
    _, found, rest = tables.partition(table.BEGIN.format(row.case))
    section = rest.partition(table.END.format(row.case))[0]
    for line in section.splitlines():
        cells = [cell.strip() for cell in line.strip("| ").split(" | ")]
        if found and cells[:2] == [row.until, row.peer] and len(cells) > 5:
            ratio, pairs, ours, theirs = cells[2:6]
            return row.what, row.peer, ratio, pairs, _with_unit(ours, row.unit), _with_unit(theirs, row.unit)
    raise ValueError(f"the tables have no row {row.until!r} against {row.peer!r} in the section {row.case}")


def _with_unit(cell: str, unit: str) -> str:
    """The median with its unit; the spread in seconds is on the other page."""
    return f"{cell.partition(' (')[0]} {unit}"


if __name__ == "__main__":
    docs = Path(__file__).parents[1] / "docs"
    reader = docs / "performance.md"
    new = rewritten(reader.read_text(encoding="utf-8"), (docs / "benchmarks.md").read_text(encoding="utf-8"))
    reader.write_text(new, encoding="utf-8")
