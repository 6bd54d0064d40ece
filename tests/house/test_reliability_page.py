"""docs/simulator.md lists what the simulator checks, no more and no less, and docs/track-record.md tests that exist."""

import ast
import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGE = "".join((ROOT / "docs" / f"{name}.md").read_text(encoding="utf-8") for name in ("simulator", "track-record"))
SIMULATION = ROOT / "tests" / "simulation"


def rules() -> set[str]:
    """The sentence of each rule, as the code has it."""
    found: set[str] = set()
    for name in ("invariants", "books", "masters", "roles", "script", "services", "survivors", "targets", "world"):
        for node in ast.walk(ast.parse((SIMULATION / f"{name}.py").read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.args:
                first = node.args[0]
                if node.func.attr in ("violated", "_violated") and isinstance(first, ast.Constant):
                    found.add(str(first.value))
    return found


def section(title: str) -> str:
    """What stands under that heading, up to the next."""
    return re.split(r"^##+ ", PAGE.partition(f" {title}\n")[2], maxsplit=1, flags=re.MULTILINE)[0]


def test_every_rule_of_the_simulator_is_on_the_page_and_no_other() -> None:
    table = re.findall(r"^\| \d+\. [^|]+\| (.+) \|$", section("The rules of the simulator"), re.MULTILINE)
    listed = [rule for row in table for rule in row.split("; ")]
    assert sorted(listed) == sorted(rules())


def test_every_planted_defect_is_on_the_page_with_its_schedule() -> None:
    from ..simulation.mutants import MUTANTS, row

    rows = [line for line in section("Planted defects").splitlines() if line.startswith("| ")][1:]
    assert rows == [row(mutant) for mutant in MUTANTS]


def test_every_test_of_the_track_record_exists() -> None:
    missing: list[str] = []
    kept_by = re.findall(r"\[[^\]]+\]\(\.\./(tests/[^)]+)\)((?: (?:and )?`[^`]+`,?)+)", section("Defects"))
    assert len(kept_by) > 40
    for path, names in kept_by:
        source = (ROOT / path).read_text(encoding="utf-8")
        for name in re.findall(r"`([^`]+)`", names):
            test = name.rpartition("::")[2]
            kept = (SIMULATION / "found" / f"{test}.txt").exists() if path.endswith("test_found.py") else False
            kept = kept or (path.endswith(".txt") and f"# {name}\n" in source)  # a sentence of a transcript
            if not kept and f"def {test}(" not in source:
                missing.append(f"{path}: {name}")
    assert not missing


def test_every_test_of_a_framework_exists() -> None:
    sources = "".join(file.read_text(encoding="utf-8") for file in (ROOT / "tests" / "integration").glob("test_*.py"))
    names = re.findall(r"`(test_[a-z0-9_]+)`", section("Frameworks"))
    assert len(set(names)) > 12
    assert not [name for name in names if f"def {name}(" not in sources]
