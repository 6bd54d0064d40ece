"""docs/environment.md names every variable that a worker gets, and every one that the code reads."""

import ast
import re
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from elastic_run.adapters.contract import Peer, Round, Worker
from elastic_run.adapters.environment import Told, worker_environment
from elastic_run.adapters.registry import BUILT_IN, adapter

ROOT = Path(__file__).parents[2]
FOLDERS = ("launcher", "elastic_agent", "rendezvous", "master", "adapters")
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


def names_on_the_page() -> set[str]:
    """Those in the first column of its tables."""
    page = (ROOT / "docs" / "environment.md").read_text(encoding="utf-8")
    cells = [line.split(" | ")[0] for line in page.splitlines() if line.startswith("| `")]
    return {name for cell in cells for name in re.findall(r"`([A-Z][A-Za-z0-9_]+)`", cell)}


def sources() -> Iterator[tuple[Path, ast.Module]]:
    for folder in FOLDERS:
        for path in sorted((ROOT / folder).rglob("*.py")):
            yield path, ast.parse(path.read_text(encoding="utf-8"))


def read_by_the_code() -> dict[str, str]:
    """Each variable that is asked for by its name, or by a constant that holds it, with a file that does."""
    trees = list(sources())
    constants: dict[str, set[str]] = {}
    for _, tree in trees:
        for node in ast.walk(tree):
            if isinstance(node, ast.Assign):
                for target in node.targets:
                    if isinstance(target, ast.Name) and target.id.lstrip("_").isupper():
                        constants.setdefault(target.id, set()).update(texts(node.value, {}))
    found: dict[str, str] = {}
    for path, tree in trees:
        known = dict(constants)
        for node in ast.walk(tree):
            if isinstance(node, ast.For | ast.comprehension) and isinstance(node.target, ast.Name):
                known[node.target.id] = texts(node.iter, constants)
        for node in ast.walk(tree):
            for key in asked(node):
                for text in texts(key, known):
                    if re.fullmatch(r"[A-Z][A-Z0-9_]{3,}", text):
                        found[text] = path.relative_to(ROOT).as_posix()
    return found


def texts(node: ast.expr, known: Mapping[str, set[str]]) -> set[str]:
    """The words that an expression may be, or may consist of."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return {node.value}
    if isinstance(node, ast.Name):
        return known.get(node.id, set())
    if isinstance(node, ast.Tuple | ast.List | ast.Set):
        return set[str]().union(*(texts(one, known) for one in node.elts))
    return set()


def asked(node: ast.AST) -> Iterator[ast.expr]:
    """The keys for which this node asks an environment."""
    if isinstance(node, ast.Subscript) and place(node.value):
        yield node.slice
    elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
        if node.func.attr in READERS and place(node.func.value):
            yield from node.args[:1]
    elif isinstance(node, ast.Compare) and any(map(place, node.comparators)):
        yield node.left


def place(node: ast.expr) -> bool:
    name = node.id if isinstance(node, ast.Name) else node.attr if isinstance(node, ast.Attribute) else ""
    return name in PLACES


@pytest.mark.parametrize("framework", BUILT_IN)
def test_every_variable_of_a_worker_is_on_the_page(framework: str) -> None:
    peers = tuple(Peer(rank, "127.0.0.1", (29501, 29502), node=rank // 2) for rank in range(4))
    round = Round("job", 3, 4, 2, "127.0.0.1", 23456, 1, 2, ("SIGTERM",), peers, SERVICES)
    worker = Worker(3, 1, 2, "b", 1, role_rank=3, role_world_size=4, error_file="/tmp/error.json", own_device=True)
    told = Told(8, "@agent", True, "/tmp/trace")
    found = worker_environment(adapter(framework), round, worker, {"CUDA_VISIBLE_DEVICES": "0,1"}, told)
    assert set(found) - names_on_the_page() == set()


def test_every_variable_that_the_code_reads_is_on_the_page_or_internal() -> None:
    found = read_by_the_code()
    assert {"PYTHON_EXEC", "SLURM_JOB_NODELIST", "ELASTIC_RUN_SECRET"} <= set(found)
    page = names_on_the_page()
    assert {name: path for name, path in found.items() if name not in page | INTERNAL} == {}


def test_nothing_internal_is_on_the_page_and_nothing_of_ours_there_is_unknown_to_the_code() -> None:
    page = names_on_the_page()
    assert page & INTERNAL == set()
    text = "".join(path.read_text(encoding="utf-8") for path, _ in sources())
    assert {name for name in page if name.startswith("ELASTIC_RUN") and name not in text} == set()
