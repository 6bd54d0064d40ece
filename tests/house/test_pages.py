"""The pages are true where a program can tell: links lead somewhere, and what a row names is in the code."""

import ast
import re
import tomllib
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from elastic_run.adapters.models.commands import VERBS, flags_of
from elastic_run.launcher.options.flags import FLAGS

from . import pages
from .pages import LINK, PAGES, Row
from .sources import FOLDERS, ROOT, files, nodes, place, product, text

SIMULATION = ROOT / "tests" / "simulation"
NAME = r"`[A-Za-z_][\w.:]*(?:\([\w, ]*\))?`"
NAMES = rf"{NAME}(?:(?:,| and|, and) {NAME})*"
"""One name or several, as a sentence has them."""

BEFORE = re.compile(rf"({NAMES}) in \[[^\]]*\]\(([^)#\s]+\.py)\)")
AFTER = re.compile(rf"\]\(([^)#\s]+\.py)\) ({NAMES})")


# -- links ------------------------------------------------------------------------------------------------------------


def leads_somewhere(path: Path, link: str) -> bool:
    """Whether a relative link of a page leads to a file of the repository, and to a heading where it names one."""
    found, anchor = pages.target(path, link), link.partition("#")[2]
    return found.is_relative_to(ROOT) and found.exists() and (not anchor or anchor in pages.anchors(found))


def test_every_relative_link_leads_somewhere() -> None:
    relative = [
        (path, link) for path in PAGES for _, link in LINK.findall(pages.prose(path)) if not re.match(r"[a-z]+:", link)
    ]
    assert len(relative) > 500
    assert [f"{place(path)}: {link}" for path, link in relative if not leads_somewhere(path, link)] == []


def test_a_link_that_is_called_like_a_file_leads_to_it() -> None:
    links = [(path, *found) for path in PAGES for found in LINK.findall(pages.prose(path))]
    named = [each for each in links if re.fullmatch(r"[\w./-]+\.(?:py|md|yaml|sh)", each[1])]
    assert len(named) > 200
    wrong = [each for each in named if not each[2].partition("#")[0].endswith(each[1].lstrip("./"))]
    assert [f"{place(path)}: {name} leads to {link}" for path, name, link in wrong] == []


def test_every_path_that_a_page_names_exists() -> None:
    rooms = (*FOLDERS, "src", "tests", "docs", "benchmarks", "examples", "deploy", ".github", ".ci")
    named = [(path, name) for path in PAGES for name in re.findall(r"`([\w.-]+/[\w./-]*)`", pages.prose(path))]
    ours = [(path, name) for path, name in named if name.partition("/")[0] in rooms]
    assert len(ours) > 30
    assert [f"{place(path)}: {name}" for path, name in ours if not (ROOT / name).exists()] == []


def test_each_room_is_on_the_page_how_it_works() -> None:
    """A folder of the product that the page does not link is one that a newcomer does not find."""
    rooms = {path.parent for path in product() if path.name == "__init__.py"}
    rooms -= {ROOT / "rendezvous" / "store" / "etcd" / "proto"}  # generated
    path = ROOT / "docs" / "how-it-works.md"
    linked = {pages.target(path, link) for _, link in LINK.findall(text(path)) if link.startswith("../")}
    folders = {found if found.is_dir() else found.parent for found in linked}
    assert sorted(place(room) for room in rooms - folders) == []


# -- names ------------------------------------------------------------------------------------------------------------


@cache
def defined(path: Path) -> frozenset[str]:
    """What a module defines: functions, classes, methods, constants and attributes, also as `Class.name`."""
    if path.is_relative_to(ROOT / "tests"):
        return frozenset(outline(path))
    found: set[str] = set()
    for node in nodes(path):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            found.add(node.name)
        elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
            found.add(node.attr)
        if isinstance(node, ast.Module | ast.ClassDef):
            own = {name for each in node.body for name in names_of(each)}
            found |= own
            if isinstance(node, ast.ClassDef):
                found |= {f"{node.name}.{name}" for name in own}
    return frozenset(found)


def outline(path: Path) -> Iterator[str]:
    """The functions, classes and methods of a module of tests, by their lines: to parse all takes seconds."""
    own = ""
    for line in re.findall(r"^(?: {4})?(?:async def|def|class) \w+", text(path), re.MULTILINE):
        name = line.rpartition(" ")[2]
        if line[0] != " ":
            own = name
        else:
            yield f"{own}.{name}"
        yield name
    if path == SIMULATION / "test_found.py":  # each file there is a test
        yield from (kept.stem for kept in (SIMULATION / "found").glob("*.txt"))


def names_of(statement: ast.stmt) -> set[str]:
    """The names that one statement of a module or of a class defines."""
    if isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        return {statement.name}
    targets = statement.targets if isinstance(statement, ast.Assign) else [getattr(statement, "target", None)]
    return {node.id for each in targets if each for node in ast.walk(each) if isinstance(node, ast.Name)}


def missing(path: Path, names: str, *links: str) -> list[str]:
    """Those of the names in backticks that none of these modules defines."""
    modules = [found for found in (pages.target(path, link) for link in links) if found.is_file()]
    known = frozenset[str]().union(*map(defined, modules))
    wanted = [each.partition("(")[0].replace("::", ".") for each in re.findall(r"`([^`]+)`", names)]
    return [f"{place(path)}: {name} in {', '.join(links)}" for name in wanted if name not in known]


def unknown(row: Row) -> Iterator[str]:
    """What a row of a table says to be in a file that it links, and is not.

    A name in backticks belongs to the modules of the product that its own cell links, or, where a cell has nothing but
    names, to the modules that a cell with nothing but links has.
    """
    linked = [[link for _, link in LINK.findall(cell) if link.endswith(".py")] for cell in row.cells]
    bare = [re.sub(LINK, "", cell) for cell in row.cells]
    for cell, links in zip(bare, linked, strict=True):
        if any(pages.target(row.path, link).relative_to(ROOT).parts[0] in FOLDERS for link in links):
            yield from missing(row.path, " ".join(re.findall(NAME, cell)), *links)
    only = [link for cell, links in zip(bare, linked, strict=True) if not re.search(r"\w", cell) for link in links]
    if only:
        for cell in row.cells:
            if re.fullmatch(NAMES, cell):
                yield from missing(row.path, cell, *only)


def test_each_name_beside_a_link_is_in_the_file_to_which_it_leads() -> None:
    found = [(path, names, file) for path in PAGES for names, file in BEFORE.findall(pages.prose(path))]
    found += [(path, names, file) for path in PAGES for file, names in AFTER.findall(pages.prose(path))]
    assert len(found) > 350
    assert [each for path, names, file in found for each in missing(path, names, file)] == []


def test_each_name_of_a_table_is_in_the_files_of_its_row() -> None:
    rows = [row for path in PAGES for row in pages.tables(path)]
    assert len(rows) > 1000
    assert [each for row in rows for each in unknown(row)] == []


@pytest.mark.parametrize(
    ("cells", "wrong"),
    [
        (("`decide`", "[round.py](../rendezvous/round.py)"), 0),
        (("`decides`, `decide`", "[round.py](../rendezvous/round.py)"), 1),
        (("when?", "`Policy.decide` says it: [round.py](../rendezvous/round.py)"), 1),
        (("`anything`", "what [round.py](../rendezvous/round.py) says"), 0),
    ],
)
def test_a_row_that_names_what_is_not_there_is_found(cells: tuple[str, ...], wrong: int) -> None:
    assert len(list(unknown(Row(ROOT / "docs" / "store.md", ("a", "b"), cells)))) == wrong


def test_every_test_that_a_page_names_exists() -> None:
    known = {path.stem for path in files("tests")}
    known |= {name for path in files("tests") for name in re.findall(r"def (test_\w+)\(", text(path))}
    named = {(place(path), name) for path in PAGES for name in re.findall(r"\btest_\w+", text(path))}
    assert len(named) > 400
    assert [f"{path}: {name}" for path, name in sorted(named) if name not in known] == []


def test_every_planted_defect_that_a_page_names_is_in_the_table() -> None:
    table = {row[0].partition(":")[0] for row in pages.rows("simulator", "Planted defects")}
    found = [
        each for path in PAGES for each in re.findall(r"planted defects? ((?:(?:, | and )?`[\w-]+`)+)", text(path))
    ]
    named = {name for names in found for name in re.findall(r"`([^`]+)`", names)}
    assert len(named) > 5
    assert named - table == set()


# -- commands and flags -----------------------------------------------------------------------------------------------


def test_every_target_of_make_exists() -> None:
    known = set(re.findall(r"^([a-z][a-z-]*):", text(ROOT / "Makefile"), re.MULTILINE))
    words = {word for command in pages.commands() if command.startswith("make ") for word in command.split()[1:]}
    words |= {word for path in PAGES for word in re.findall(r"`(?:[A-Z_]+=\S+ )*make ([a-z-]+)", pages.prose(path))}
    named = {word for word in words if re.fullmatch(r"[a-z][a-z-]*", word)}
    assert len(named) > 8
    assert named - known == set()


def test_every_module_and_script_that_python_is_given_exists() -> None:
    found = [
        command for command in pages.commands() if re.match("python (?!model.py)", command)
    ]  # docs/models.md has it
    found += [command for path in PAGES for command in re.findall(r"`(python -m [^`]+)`", pages.prose(path))]
    assert len(found) > 20
    for command in found:
        words = command.split()
        module = words[words.index("-m") + 1].replace(".", "/") if "-m" in words else words[1]
        file = ROOT / re.sub("^elastic_run", "src/elastic_run", module)
        assert file.is_file() or file.with_suffix(".py").is_file() or (file / "__main__.py").is_file(), command


def test_every_installation_is_from_a_clone_and_of_an_extra_that_exists() -> None:
    """No index has the package yet: `pip install 'elastic-run[etcd]'` finds nothing, or a stranger's."""
    extras = tomllib.loads(text(ROOT / "pyproject.toml"))["project"]["optional-dependencies"]
    found = re.findall(r"pip install[^`\n]*?['\s]([^'\s]*\[\w+\])", "\n".join(map(text, PAGES)))
    assert len(found) > 4
    assert {each for each in found if not re.fullmatch(rf"\.\[({'|'.join(extras)})\]", each)} == set()


FOREIGN = {
    "benchmarks": "--markdown --json --pictures --quick --nodes --goodput-minutes --checkouts",
    "cluster": "--pictures",
    "diagnosis": "--nonblocking",
    "etcd": "--auto-compaction-mode",
    "from-dlrover": "--standalone --node_unit --max_restarts --auto-config --network-check --save-at-breakpoint "
    "--comm-perf-test --precheck --exclude-straggler --auto-tunning --accelerator --training_port --numa-affinity",
    "from-horovod": "--hostfile --min-np --host-discovery-script --slots-per-host --start-timeout --mpi "
    "--elastic-timeout --reset-limit --blacklist-cooldown-range --network-interfaces --gloo --autotune "
    "--output-filename --fusion-threshold-mb --cycle-time-ms --timeline-filename",
    "horovod": "--min-np --elastic-timeout",
    "slurm": "--no-kill --kill-on-bad-exit",
}
"""Flags of other programs that a page names, as it should."""


def test_every_flag_of_the_pages_exists() -> None:
    known = {spelling for flag in FLAGS for spelling in flag.spellings}
    known |= {flag for verb in VERBS for flag in flags_of(verb)}
    known |= {flag for path in files("launcher") for flag in re.findall(r"(?<![\w-])--[a-z][\w-]*", text(path))}
    for path in (ROOT / "README.md", *(ROOT / "docs").glob("*.md")):
        found = [
            *re.findall(r"\belastic-(?:run|job)((?: (?:--[\w-]+\S*|-\w\b))+)", text(path).replace("\\\n", " ")),
            *re.findall(r"`(--[\w-]+)[^`]*`", text(path)),
        ]
        named = set(re.findall(r"--[a-z][\w-]*", " ".join(found)))
        assert named - known - set(FOREIGN.get(path.stem, "").split()) == set(), place(path)


# -- what is printed --------------------------------------------------------------------------------------------------


def test_every_sentence_of_the_troubleshooting_table_is_one_that_the_code_prints() -> None:
    constants = (node.value for path in product() for node in nodes(path) if isinstance(node, ast.Constant))
    printed = "\n".join(" ".join(value.split()) for value in constants if isinstance(value, str))
    cells = [row.cells[0] for row in pages.tables(ROOT / "docs" / "troubleshooting.md")]
    shown = [cell for cell in cells if re.fullmatch(r"`.*?`(?: or `.*?`)*", cell)]
    sentences = [one for cell in shown for one in re.findall(r"`(.*?)`", cell)]
    assert len(sentences) > 20
    unknown: list[str] = []
    for sentence in sentences:
        # Numbers, hosts and what the dots stand for are filled in when it is printed.
        pieces = [piece.strip(" :;,()/") for piece in re.split(r"\.\.\.|\bhost\d\b|\b\d[\w.]*", sentence)]
        longest = max(pieces, key=len)
        if len(longest) < 8 or longest not in printed:
            unknown.append(sentence)
    assert unknown == []


# -- decisions --------------------------------------------------------------------------------------------------------


def test_every_decision_has_a_number_a_status_and_a_date() -> None:
    """The site makes its list of decisions of these."""
    decisions = sorted((ROOT / "docs" / "decisions").glob("*.md"))
    assert len(decisions) > 30
    wrong = [
        path.name
        for path in decisions
        if not re.match(
            rf"# {path.name[:3]}: .+\n\nStatus: (accepted|replaced by \d{{3}}), \d{{4}}-\d\d-\d\d\.\n", text(path)
        )
    ]
    assert wrong == []
