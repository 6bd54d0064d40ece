"""What strangers read is true: the README's first transcript is run again, and the pages agree with the code.

The rules: what it replaces by line 25, how to install by line 50, the first transcript by line 95, every link leads
somewhere, and every measured figure has a link to the page of the benchmark that gives it.
"""

import ast
import os
import re
import shlex
import socket
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

import elastic_run

ROOT = Path(__file__).parents[2]
PACKAGE = Path(next(iter(elastic_run.__path__)))
README = (ROOT / "README.md").read_text(encoding="utf-8")
FOLDERS = ("launcher", "elastic_agent", "adapters", "master", "rendezvous")
GUIDES = tuple(sorted(page.stem for page in (ROOT / "docs").glob("*.md")))
PAGES = sorted(
    [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")], key=lambda page: (len(page.parts), page.as_posix())
)

DEADLINE = 120.0
"""Seconds for the first transcript, which takes five."""

FIGURE = re.compile(r"(?<![\w.])\d+(?:\.\d+)?\s?(?:x|%|ms|s|kB|MB|GB|times|seconds|minutes)(?!\w)")
FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


@dataclass(frozen=True, slots=True)
class Block:
    """One fenced block: its language, its text, and the line on which the text begins (from 1)."""

    language: str
    text: str
    line: int


def blocks(page: str) -> list[Block]:
    return [Block(found[1], found[2], page[: found.start(2)].count("\n") + 1) for found in FENCE.finditer(page)]


def line_of(pattern: str) -> int:
    """The first line of the README that matches (from 1)."""
    for number, line in enumerate(README.splitlines(), start=1):
        if re.search(pattern, line):
            return number
    pytest.fail(f"README.md has no line like {pattern!r}")


def first_transcript() -> Block:
    return next(block for block in blocks(README) if block.language == "console")


def paragraphs(page: str) -> Iterator[str]:
    """Prose and the rows of tables, each with what stands together; fenced and indented blocks are left out."""
    for part in re.split(r"\n\s*\n", FENCE.sub("", page)):
        lines = [line for line in part.splitlines() if line.strip() and not line.startswith("    ")]
        if lines and all(line.startswith("|") for line in lines):
            yield from lines
        elif lines:
            yield "\n".join(lines)


def normalised(output: str, host: str) -> list[str]:
    """The lines without what differs from run to run: the host's name, the job's digest, times, ports and pids."""
    text = re.sub(rf"(?<![\w-]){re.escape(host)}(?![\w-])", "HOST", output)
    text = re.sub(r"\btrain-[0-9a-f]{8}\b", "train-ID", text)
    text = re.sub(r"\b\d+\.\d+ s\b", "T s", text)
    text = re.sub(r"\b(127\.0\.0\.1|pid)([: ])\d+", r"\1\2N", text)
    return text.strip().splitlines()


# -- the first hour ---------------------------------------------------------------------------------------------------


def test_what_it_replaces_is_said_by_line_25() -> None:
    assert line_of(r"replaces.*torchrun") <= 25


def test_how_to_install_is_said_by_line_50() -> None:
    assert line_of(r"^ {4}pip install") <= 50


def test_the_first_transcript_is_whole_by_line_95() -> None:
    block = first_transcript()
    assert block.line + block.text.count("\n") <= 95


def test_it_is_read_in_a_few_minutes() -> None:
    assert len(README.split()) < 900


def test_the_first_transcript_happens_as_it_is_shown(tmp_path: Path) -> None:
    block = first_transcript()
    script = next(other for other in blocks(README) if other.language == "python" and other.line < block.line)
    (tmp_path / "train.py").write_text(script.text, encoding="utf-8")
    command, _, shown = block.text.partition("\n")
    assert command.startswith("$ elastic-run "), "the transcript begins with its one command"
    assert "\n$ " not in shown, "and has no other"
    words = shlex.split(command.removeprefix("$ elastic-run "))
    silent = {name: value for name, value in os.environ.items() if not name.startswith(("PET_", "SLURM_", "TORCH"))}
    ran = subprocess.run(
        [sys.executable, "-m", "elastic_run", *words],
        cwd=tmp_path,
        env={**silent, "PYTHONPATH": str(PACKAGE.parent)},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,  # as on a terminal: in the order in which the lines came
        text=True,
        timeout=DEADLINE,
        check=False,
    )
    host = socket.gethostname().split(".")[0]
    assert normalised(ran.stdout, host) == normalised(shown, "laptop")
    assert ran.returncode == 0


# -- links and figures ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_every_relative_link_leads_somewhere(page: Path) -> None:
    broken = [
        target
        for target in re.findall(r"\]\(([^)\s]+)\)", FENCE.sub("", page.read_text(encoding="utf-8")))
        if not re.match(r"[a-z]+:", target) and not leads_somewhere(page, target)
    ]
    assert broken == []


def leads_somewhere(page: Path, target: str) -> bool:
    path, _, anchor = target.partition("#")
    file = (page.parent / path).resolve() if path else page
    if not file.exists() or not file.is_relative_to(ROOT):
        return False
    return not anchor or anchor in anchors(file)


def anchors(page: Path) -> set[str]:
    """A page's headings as a browser addresses them."""
    headings = re.findall(r"^#+ (.+)$", FENCE.sub("", page.read_text(encoding="utf-8")), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).strip().replace(" ", "-") for heading in headings}


def test_every_figure_of_the_readme_links_to_the_benchmark_that_gives_it() -> None:
    bare = [text for text in paragraphs(README) if FIGURE.search(text) and "](docs/benchmarks.md" not in text]
    assert bare == []


def test_every_figure_of_the_readme_lies_within_what_was_measured_last() -> None:
    measured = (ROOT / "docs" / "benchmarks.md").read_text(encoding="utf-8")
    with_figures = [text for text in paragraphs(README) if FIGURE.search(text)]
    assert with_figures, "the README says how much quicker it is"
    for text in with_figures:
        anchor = re.search(r"\]\(docs/benchmarks\.md#([\w-]+)\)", text)
        assert anchor, text
        heading = anchor[1].replace("-", "[ -]")
        section = re.split(rf"^## {heading}$", measured, flags=re.MULTILINE | re.IGNORECASE)[1].partition("\n## ")[0]
        rows = "\n".join(
            line for line in section.splitlines() if line.startswith("| next full step | torchrun, noshare")
        )
        spreads = [(float(low), float(high)) for low, high in re.findall(r"([\d.]+)x - >?([\d.]+)x", rows)]
        for figure in FIGURE.findall(text):
            ratio = float(figure.removesuffix("x"))  # others than ratios depend on the machine, and do not belong there
            assert any(low <= ratio <= high for low, high in spreads), f"{figure} is not what was measured: {text}"


def test_every_output_that_the_readme_shows_begins_with_the_command_that_makes_it() -> None:
    assert [block.line for block in blocks(README) if block.language == "console" and block.text[:2] != "$ "] == []


FOREIGN = {
    "benchmarks": {"--markdown", "--json", "--pictures", "--quick", "--nodes", "--goodput-minutes", "--checkouts"},
    "cluster": {"--pictures"},
    "diagnosis": {"--nonblocking"},
    "etcd": {"--auto-compaction-mode"},
    "from-dlrover": {
        "--standalone",
        "--node_unit",
        "--max_restarts",
        "--auto-config",
        "--network-check",
        "--save-at-breakpoint",
    }
    | {"--comm-perf-test", "--precheck", "--exclude-straggler", "--auto-tunning", "--accelerator", "--training_port"}
    | {"--numa-affinity"},
    "from-horovod": {
        "--hostfile",
        "--min-np",
        "--host-discovery-script",
        "--slots-per-host",
        "--start-timeout",
        "--mpi",
    }
    | {
        "--elastic-timeout",
        "--reset-limit",
        "--blacklist-cooldown-range",
        "--network-interfaces",
        "--gloo",
        "--autotune",
    }
    | {"--output-filename", "--fusion-threshold-mb", "--cycle-time-ms", "--timeline-filename"},
    "horovod": {"--min-np", "--elastic-timeout"},
    "slurm": {"--no-kill", "--kill-on-bad-exit"},
}
"""Flags of other programs that a page names, as it should."""


def flags_of_our_programs() -> set[str]:
    """Those of elastic-run's table, and every other that a usage or a parser in the launcher's code names."""
    from elastic_run.launcher.options.flags import FLAGS

    known = {spelling for flag in FLAGS for spelling in flag.spellings}
    for path in (ROOT / "launcher").rglob("*.py"):
        known |= set(re.findall(r"(?<![\w-])--[a-z][\w-]*", path.read_text(encoding="utf-8")))
    return known


def test_every_flag_of_the_pages_exists() -> None:
    known = flags_of_our_programs()
    for page in (ROOT / "README.md", *(ROOT / "docs" / f"{name}.md" for name in GUIDES)):
        text = page.read_text(encoding="utf-8")
        ours = " ".join(
            [
                *re.findall(r"\belastic-(?:run|job)((?: (?:--[\w-]+\S*|-\w\b))+)", text.replace("\\\n", " ")),
                *re.findall(r"`(--[\w-]+)[^`]*`", text),
            ]
        )
        unknown = set(re.findall(r"--[a-z][\w-]*", ours)) - known - FOREIGN.get(page.stem, set())
        assert unknown == set(), page.name


# -- what is printed --------------------------------------------------------------------------------------------------


def printed() -> list[str]:
    """Every text in the code, those in several pieces whole."""
    found: list[str] = []
    for folder in FOLDERS:
        for path in (ROOT / folder).rglob("*.py"):
            for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
                if isinstance(node, ast.Constant) and isinstance(node.value, str):
                    found.append(" ".join(node.value.split()))
    return found


def test_every_sentence_of_the_troubleshooting_table_is_one_that_the_code_prints() -> None:
    page = (ROOT / "docs" / "troubleshooting.md").read_text(encoding="utf-8")
    sentences = re.findall(r"^\| (`.*?`(?: or `.*?`)*) \|", page, re.MULTILINE)
    assert len(sentences) > 20
    code = printed()
    unknown: list[str] = []
    for sentence in (one for cell in sentences for one in re.findall(r"`(.*?)`", cell)):
        # Numbers, hosts and what the dots stand for are filled in when it is printed.
        pieces = [piece.strip(" :;,()/") for piece in re.split(r"\.\.\.|\bhost\d\b|\b\d[\w.]*", sentence)]
        longest = max(pieces, key=len)
        if len(longest) < 8 or not any(longest in text for text in code):
            unknown.append(sentence)
    assert unknown == []


def test_make_asks_for_torch_without_cuda_and_says_where_it_is_where_pip_does_not_find_it(tmp_path: Path) -> None:
    # As on PyPI alone: pip finds no build with that local version. What it is asked for is noted.
    pip = tmp_path / "python"
    pip.write_text(
        "#!/bin/sh\n"
        f'case "$*" in "-m venv "*) mkdir -p "$3/bin"; cp "$0" "$3/bin/python";; '
        f'*"pip install"*) echo "$*" >>{tmp_path}/asked; case "$*" in *+cpu*) exit 1;; esac;; esac\n'
    )
    pip.chmod(0o755)
    command = ["make", f"VENV={tmp_path}/venv", f"PYTHON={pip}", f"{tmp_path}/venv/bin/.demo"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert (tmp_path / "asked").read_text() == "-m pip install --quiet --constraint tests/lock.txt torch==2.13.0+cpu\n"
    assert "set PIP_EXTRA_INDEX_URL" in done.stdout and "make TORCH=torch==2.13.0" in done.stdout
