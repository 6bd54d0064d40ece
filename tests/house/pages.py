"""What stands on the pages: links, tables, blocks and commands."""

import re
import textwrap
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from .sources import ROOT, place, text

PAGES = sorted(
    [
        *ROOT.glob("*.md"),
        *(ROOT / "docs").rglob("*.md"),
        *(ROOT / "examples").glob("*.md"),
        *(ROOT / "tests").glob("*.md"),
    ]
)
FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
INDENTED = re.compile(r"(?<=\n\n)(?:    .*\n|\n(?=    ))+")
LINK = re.compile(r"\[([^\]]*)\]\(([^)\s]+)\)")
PROGRAMS = (
    "elastic-run",
    "elastic-job",
    "python",
    "make",
    "pip",
    "kubectl",
    "etcdctl",
    "torchrun",
    "horovodrun",
    "kill",
)
"""A line of a block that begins with one of these is a command."""


def page(name: str) -> str:
    """The text of `docs/NAME.md`."""
    return text(ROOT / "docs" / f"{name}.md")


def section(name: str, heading: str) -> str:
    """What stands under a heading of `docs/NAME.md`, up to the next heading of any level."""
    _, found, rest = page(name).partition(f" {heading}\n")
    assert found, f"docs/{name}.md has no heading {heading!r}"
    return re.split(r"^##+ ", rest, maxsplit=1, flags=re.MULTILINE)[0]


@cache
def prose(path: Path) -> str:
    """A page without its fenced blocks."""
    return FENCE.sub("", text(path))


@cache
def anchors(path: Path) -> frozenset[str]:
    """A page's headings as a browser addresses them."""
    headings = re.findall(r"^#+ (.+)$", prose(path), re.MULTILINE)
    return frozenset(re.sub(r"[^\w\- ]", "", heading.lower()).strip().replace(" ", "-") for heading in headings)


def target(path: Path, link: str) -> Path:
    """The file or folder to which a relative link of a page leads."""
    name = link.partition("#")[0]
    return (path.parent / name).resolve() if name else path


@dataclass(frozen=True, slots=True)
class Row:
    """One row of a table: its page, the headings of its table, and its cells."""

    path: Path
    headings: tuple[str, ...]
    cells: tuple[str, ...]

    def __str__(self) -> str:
        return f"{place(self.path)}: {self.cells[0][:60]}"


def cells(line: str) -> tuple[str, ...]:
    """Of a line of a table; a bar within a cell is written with a backslash."""
    return tuple(cell.strip().replace(r"\|", "|") for cell in re.split(r"(?<!\\)\|", line)[1:-1])


@cache
def tables(path: Path) -> tuple[Row, ...]:
    """The rows of every table of a page."""
    found: list[Row] = []
    for table in re.findall(r"(?:^\|.*\n)+", prose(path), re.MULTILINE):
        headings, _, *lines = table.splitlines()
        found += [Row(path, cells(headings), cells(line)) for line in lines]
    return tuple(found)


def rows(name: str, heading: str) -> list[tuple[str, ...]]:
    """The cells of the first table under a heading of `docs/NAME.md`."""
    table = re.findall(r"(?:^\|.*\n)+", section(name, heading), re.MULTILINE)[0]
    return [cells(line) for line in table.splitlines()[2:]]


@dataclass(frozen=True, slots=True)
class Block:
    """A fenced or indented block: the page's name, the language of a fence, the text without its indentation."""

    page: str
    language: str
    text: str

    @property
    def name(self) -> str:
        return f"{self.page}: {self.text.strip().splitlines()[0].strip()}"


@cache
def blocks() -> tuple[Block, ...]:
    """Every block of every page."""
    found: list[Block] = []
    for path in PAGES:
        found += [Block(path.stem, fence[1], fence[2]) for fence in FENCE.finditer(text(path))]
        found += [Block(path.stem, "", textwrap.dedent(block)) for block in INDENTED.findall(prose(path))]
    return tuple(found)


@cache
def commands() -> tuple[str, ...]:
    """Each line that begins with a program, once, its continuations joined and its comment removed."""
    return tuple(dict.fromkeys(_commands()))


def _commands() -> Iterator[str]:
    for block in blocks():
        if block.language not in ("", "console", "sh"):
            continue
        for line in block.text.replace("\\\n", " ").splitlines():
            words = re.sub(r"^\$ |^(srun \S+ |[A-Z_]+=\S+ )+", "", line.partition(" #")[0]).strip()
            words = re.sub(r"\s*\|\|$", "", words)
            if words.split(" ")[0] in PROGRAMS:
                yield re.sub(r"\s+", " ", words)
