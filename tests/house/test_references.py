"""Every reference on the pages is that of the code: flags, variables, metrics, keys, fields, kinds and public names."""

import ast
import dataclasses
import re
from collections.abc import Iterator, Mapping
from typing import Any, get_args, get_type_hints

import pytest

from elastic_run.adapters.contract import Peer, Round, Worker
from elastic_run.adapters.environment import Told, worker_environment
from elastic_run.adapters.plain import Plain
from elastic_run.adapters.registry import BUILT_IN, adapter
from elastic_run.launcher.diagnostics.exporter.metrics import METRICS, STORE_UP, STORE_UP_HELP, UP
from elastic_run.launcher.options import rendezvous as options
from elastic_run.launcher.options.flags import FLAGS, Flag
from elastic_run.launcher.options.preflight import ONLY_ONCE
from elastic_run.launcher.settings import Timing
from elastic_run.master.data import ledger
from elastic_run.master.diagnosis.findings import DOMAIN, OUTLOOK
from elastic_run.rendezvous.time_split import CATEGORIES

from . import pages
from .pages import page, rows
from .sources import ROOT, files, nodes, place, product, text

# -- flags ------------------------------------------------------------------------------------------------------------

FLAGS_OF = {
    "2.2.0": """
    local-addr log-dir master-addr master-port max-restarts module monitor-interval nnodes no-python node-rank
    nproc-per-node rdzv-backend rdzv-conf rdzv-endpoint rdzv-id redirects role run-path standalone start-method
    tee
    """,
    "2.15.0": """
    duplicate-stderr-filters duplicate-stdout-filters event-log-handler local-addr local-ranks-filter log-dir
    log-line-prefix-template logs-specs master-addr master-port max-restarts module monitor-interval nnodes
    no-python node-rank nproc-per-node numa-binding print-completion rdzv-backend rdzv-conf rdzv-endpoint
    rdzv-id redirects role run-path shutdown-timeout signals-to-handle standalone start-method tee
    virtual-local-rank
    """,
}
"""The flags of the oldest torchrun that is supported and of the newest that was looked at, from their own parsers."""


def code(text: str) -> str:
    """As the page shows a name; empty for none."""
    return f"`{text}`" if text else ""


def spelled(flag: Flag) -> str:
    """As the page shows a flag: its letter and its name in hyphens."""
    return ", ".join(code(spelling) for spelling in flag.spellings if "_" not in spelling)


def test_the_page_lists_every_flag_of_torchrun_with_what_it_does_here() -> None:
    listed = rows("torchrun", "Flag by flag")
    table = [(spelled(flag), flag.status, code(flag.mirror) or "-") for flag in FLAGS if flag.torchrun]
    assert [(flag, status, mirror) for flag, status, _, mirror in listed] == table
    for (flag, _, remark, _), printed in zip(listed, (flag.remark for flag in FLAGS if flag.torchrun), strict=True):
        assert remark == (printed or remark) != "", flag


def test_the_page_lists_every_flag_of_our_own() -> None:
    table = [(spelled(flag), flag.help, code(flag.default or "")) for flag in FLAGS if not flag.torchrun]
    assert rows("torchrun", "Flags that torchrun does not have") == table


def test_the_page_lists_every_key_of_ours_with_its_default() -> None:
    table = {key.strip("`"): float(default) for key, default, _ in rows("rdzv-conf", "Keys of elastic-run")}
    assert table == dataclasses.asdict(Timing())


def test_the_page_lists_every_key_of_torchrun() -> None:
    table = {key.strip("`"): (status, meaning) for key, status, meaning in rows("rdzv-conf", "Keys of torchrun")}
    honoured = {
        *options.CONF_ALIASES,
        *options.CONF_KEEP_ALIVE,
        *options.CONF_CREDENTIALS,
        options.CONF_HOST,
        "protocol",
    }
    assert {key for key, (status, _) in table.items() if status == "honoured"} == honoured
    assert {key: why for key, (status, why) in table.items() if status == "no effect"} == options.CONF_WITHOUT_EFFECT
    assert len(table) == len(honoured) + len(options.CONF_WITHOUT_EFFECT)
    for key, flag in options.CONF_CREDENTIALS.items():
        assert table[key][1] == f"`--{flag}`"


def test_every_flag_without_an_effect_says_why() -> None:
    assert [flag.name for flag in FLAGS if (flag.status == "honoured") == bool(flag.remark)] == []
    assert [flag.name for flag in FLAGS if flag.status == "no effect" and not flag.remark.startswith("because ")] == []
    assert [flag.name for flag in FLAGS if flag.status == "unsupported" and not flag.remark.startswith("try ")] == []


@pytest.mark.parametrize("version", FLAGS_OF)
def test_every_flag_of_that_torchrun_is_known(version: str) -> None:
    known = {flag.name for flag in FLAGS if flag.torchrun}
    assert set(FLAGS_OF[version].split()) <= known
    if version == max(FLAGS_OF, key=lambda each: tuple(map(int, each.split(".")))):
        assert set(FLAGS_OF[version].split()) == known


def test_no_two_flags_share_a_spelling() -> None:
    spellings = [spelling for flag in FLAGS for spelling in flag.spellings]
    assert len(spellings) == len(set(spellings))


def test_the_page_says_what_is_printed_for_a_script_on_standard_input() -> None:
    assert f"a script on standard input (-) {ONLY_ONCE}" in " ".join(page("torchrun").split())


# -- variables of the environment -------------------------------------------------------------------------------------

READERS = ("get", "pop", "setdefault")
PLACES = ("environ", "given", "inherited")
"""What the code calls an environment that it reads."""

INTERNAL = {
    "ELASTIC_RUN_CALL_FILE",
    "ELASTIC_RUN_KEPT",
    "ELASTIC_RUN_KUBERNETES_JOB",
    "ELASTIC_RUN_WARM",
}
"""What the processes of one job tell each other; a user neither sets nor reads them."""

SERVICES = {"rendezvous": "eth0 29501 29502", "coordinator": "29501", "tracker": "29501"}


def variables(name: str) -> set[str]:
    """The names in the first column of a page's tables of variables."""
    table = [row.cells[0] for row in pages.tables(ROOT / "docs" / f"{name}.md") if row.headings[0] == "variable"]
    return {found for cell in table for found in re.findall(r"`([A-Z][A-Za-z0-9_]+)`", cell)}


def read_by_the_code() -> dict[str, str]:
    """Each variable that is asked for by its name, or by a constant that holds it, with a file that does."""
    constants: dict[str, set[str]] = {}
    for path in product():
        for node in nodes(path):
            if isinstance(node, ast.Assign):
                for target in node.targets:
                    if isinstance(target, ast.Name) and target.id.lstrip("_").isupper():
                        constants.setdefault(target.id, set()).update(words(node.value, {}))
    found: dict[str, str] = {}
    for path in product():
        known = dict(constants)
        for node in nodes(path):
            if isinstance(node, ast.For | ast.comprehension) and isinstance(node.target, ast.Name):
                known[node.target.id] = words(node.iter, constants)
        for node in nodes(path):
            for key in keys(node):
                for word in words(key, known):
                    if re.fullmatch(r"[A-Z][A-Z0-9_]{3,}", word):
                        found[word] = place(path)
    return found


def words(node: ast.expr, known: Mapping[str, set[str]]) -> set[str]:
    """The words that an expression may be, or may consist of."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return {node.value}
    if isinstance(node, ast.Name):
        return known.get(node.id, set())
    if isinstance(node, ast.Tuple | ast.List | ast.Set):
        return set[str]().union(*(words(one, known) for one in node.elts))
    return set()


def keys(node: ast.AST) -> Iterator[ast.expr]:
    """The keys for which this node asks an environment."""
    if isinstance(node, ast.Subscript) and is_environment(node.value):
        yield node.slice
    elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
        if node.func.attr in READERS and is_environment(node.func.value):
            yield from node.args[:1]
    elif isinstance(node, ast.Compare) and any(map(is_environment, node.comparators)):
        yield node.left


def is_environment(node: ast.expr) -> bool:
    name = node.id if isinstance(node, ast.Name) else node.attr if isinstance(node, ast.Attribute) else ""
    return name in PLACES


@pytest.mark.parametrize("framework", BUILT_IN)
def test_every_variable_of_a_worker_is_on_the_page(framework: str) -> None:
    peers = tuple(Peer(rank, "127.0.0.1", (29501, 29502), node=rank // 2) for rank in range(4))
    round = Round("job", 3, 4, 2, "127.0.0.1", 23456, 1, 2, ("SIGTERM",), peers, SERVICES)
    worker = Worker(3, 1, 2, "b", 1, role_rank=3, role_world_size=4, error_file="/tmp/error.json", own_device=True)
    told = Told(8, "@agent", True, "/tmp/trace")
    found = worker_environment(adapter(framework), round, worker, {"CUDA_VISIBLE_DEVICES": "0,1"}, told)
    assert set(found) - variables("environment") == set()


def test_every_variable_that_the_code_reads_is_on_the_page_or_internal() -> None:
    found = read_by_the_code()
    assert {"PYTHON_EXEC", "SLURM_JOB_NODELIST", "ELASTIC_RUN_SECRET"} <= set(found)
    known = variables("environment") | INTERNAL
    assert {name: where for name, where in found.items() if name not in known} == {}


def test_nothing_internal_is_on_the_page_and_nothing_of_ours_there_is_unknown_to_the_code() -> None:
    named = variables("environment")
    assert named & INTERNAL == set()
    code = "".join(map(text, files("launcher", "elastic_agent", "rendezvous", "master", "adapters")))
    assert {name for name in named if name.startswith("ELASTIC_RUN") and name not in code} == set()


def test_every_variable_of_another_page_is_on_that_of_the_environment() -> None:
    plain = page("adapters").partition("## The plain variables")[2].partition("\n## ")[0]
    named = variables("jax") | set(re.findall(r"`([A-Z_]{4,})`", plain))
    assert len(named) > 15
    assert named - variables("environment") == set()


# -- other tables -----------------------------------------------------------------------------------------------------


def column(name: str, heading: str) -> list[str]:
    """The names in the first column of the tables of `docs/NAME.md` that have this heading, in order."""
    table = [row.cells[0] for row in pages.tables(ROOT / "docs" / f"{name}.md") if row.headings[0] == heading]
    return [found for cell in table for found in re.findall(r"[\w-]+", re.sub(r"\(.*?\)", "", cell))]


def fields(*kinds: Any) -> list[str]:  # Any: a dataclass has no type of its own
    return [field.name for kind in kinds for field in dataclasses.fields(kind)]


def test_the_page_lists_every_metric_with_its_meaning() -> None:
    table = [(code(STORE_UP), "gauge", "", STORE_UP_HELP)]
    table += [(code(each.name), each.kind, ", ".join(map(code, each.labels)), each.help) for each in (UP, *METRICS)]
    assert rows("monitoring", "Metrics") == table


def test_the_page_lists_every_category_of_a_jobs_time() -> None:
    assert sorted(column("monitoring", "category")) == sorted(CATEGORIES)


def test_the_page_lists_every_kind_of_finding_with_its_domain_and_its_outlook() -> None:
    table = rows("diagnosis", "Kinds")
    assert sorted(column("diagnosis", "kind")) == sorted(DOMAIN)
    for kinds, domains, outlook, _ in table:
        named = re.findall(r"`([\w-]+)`", kinds)
        assert {DOMAIN[kind] for kind in named} == set(domains.split(", ")), kinds
        outlooks = {OUTLOOK[kind] for kind in named}
        assert outlook == "depends" if len(outlooks) > 1 else {outlook.removeprefix("is ")} == outlooks, kinds


def test_the_page_lists_every_request_and_every_field_of_the_ledger() -> None:
    assert column("ledger", "request") == [*get_args(get_type_hints(ledger.Request)["kind"])]
    assert sorted(column("ledger", "field")) == sorted(fields(ledger.State, ledger.Owner))


def test_the_page_lists_every_attribute_of_an_adapter_and_every_field_that_it_is_given() -> None:
    assert sorted(column("adapters", "attribute")) == sorted(name for name in vars(Plain) if not name.startswith("_"))
    table = [row.cells[1] for row in pages.tables(ROOT / "docs" / "adapters.md") if row.headings == ("", "fields")]
    given = [set(re.findall(r"`(\w+)`", cell.partition(".")[0])) for cell in table]
    assert given == [set(fields(kind)) for kind in (Round, Peer, Worker)]


def test_the_page_lists_every_key_of_the_summary() -> None:
    (function,) = (
        node
        for node in nodes(ROOT / "launcher" / "summary.py")
        if isinstance(node, ast.FunctionDef) and node.name == "write_json"
    )
    (summary, *_) = (node for node in ast.walk(function) if isinstance(node, ast.Dict))
    found = [key.value for key in summary.keys if isinstance(key, ast.Constant)]
    assert sorted(column("results", "key")) == sorted(map(str, found))


# -- figures ----------------------------------------------------------------------------------------------------------

FIGURE = re.compile(r"(?<![\w.])\d+(?:\.\d+)?\s?(?:x|%|ms|s|kB|MB|GB|times|seconds|minutes)(?!\w)")


def paragraphs(page: str) -> Iterator[str]:
    """Prose and the rows of tables, each with what stands together; fenced and indented blocks are left out."""
    for part in re.split(r"\n\s*\n", page):
        lines = [line for line in part.splitlines() if line.strip() and not line.startswith("    ")]
        if lines and all(line.startswith("|") for line in lines):
            yield from lines
        elif lines:
            yield "\n".join(lines)


def test_every_figure_of_the_readme_lies_within_what_was_measured_last_in_the_section_that_it_links() -> None:
    with_figures = [each for each in paragraphs(pages.prose(ROOT / "README.md")) if FIGURE.search(each)]
    assert with_figures, "the README says how much quicker it is"
    for each in with_figures:
        anchor = re.search(r"\]\(docs/benchmarks\.md#([\w-]+)\)", each)
        assert anchor, each
        heading = anchor[1].replace("-", "[ -]")
        measured = re.split(rf"^## {heading}$", page("benchmarks"), flags=re.MULTILINE | re.IGNORECASE)[1]
        lines = [
            line
            for line in measured.partition("\n## ")[0].splitlines()
            if line.startswith("| next full step | torchrun, noshare")
        ]
        spreads = [(float(low), float(high)) for low, high in re.findall(r"([\d.]+)x - >?([\d.]+)x", "\n".join(lines))]
        for figure in FIGURE.findall(each):
            ratio = float(figure.removesuffix("x"))  # others than ratios depend on the machine, and do not belong there
            assert any(low <= ratio <= high for low, high in spreads), f"{figure} is not what was measured: {each}"
