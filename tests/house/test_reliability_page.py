"""docs/simulator.md lists what the simulator checks, no more and no less."""

import ast
import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "simulator.md").read_text(encoding="utf-8")
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


def test_every_planted_defect_is_on_the_page_with_the_rule_that_it_breaks() -> None:
    from ..simulation.mutants import MUTANTS, row

    rows = [line for line in section("Planted defects").splitlines() if line.startswith("| ")][1:]
    assert rows == [row(mutant) for mutant in MUTANTS]
