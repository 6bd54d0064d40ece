"""The exact versions that the tests install."""

import re
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[2]

NOT_LOCKED = {"torch", "elastic-run"}
"""The Makefile names torch's build; the other is this project itself."""


def requirements(path: Path) -> list[Requirement]:
    lines = path.read_text().splitlines()
    return [Requirement(line) for line in lines if line and not line.startswith("#")]


@pytest.fixture
def locked() -> dict[str, set[str]]:
    """The versions of each package; several where they depend on the Python."""
    found: dict[str, set[str]] = {}
    for each in requirements(ROOT / "tests" / "lock.txt"):
        [one] = each.specifier
        assert one.operator == "==" and not one.version.endswith("*") and each.url is None, each
        found.setdefault(canonicalize_name(each.name), set()).add(one.version)
    return found


def test_what_the_tests_install_is_locked_within_what_the_project_asks_for(locked: dict[str, set[str]]) -> None:
    text = (ROOT / "Makefile").read_text()
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    [extras] = re.findall(r"^EXTRAS := (.*)$", text, re.MULTILINE)
    assert f"'.[{extras.replace(' ', ',')}]'" in text, "make test installs these extras"
    wanted = [
        *project["dependencies"],
        *(one for extra in extras.split() for one in project["optional-dependencies"][extra]),
    ]
    for each in map(Requirement, wanted):
        name = canonicalize_name(each.name)
        assert name in NOT_LOCKED or all(map(each.specifier.contains, locked[name])), each


def test_nothing_is_locked_that_is_newer_than_what_was_tried(locked: dict[str, set[str]]) -> None:
    for each in requirements(ROOT / "tests" / "constraints.txt"):
        assert all(map(each.specifier.contains, locked.get(canonicalize_name(each.name), ()))), each


def test_the_lock_names_no_index_and_no_build_with_cuda(locked: dict[str, set[str]]) -> None:
    assert "://" not in (ROOT / "tests" / "lock.txt").read_text()
    assert not [name for name in locked if name == "torch" or name.startswith(("nvidia-", "cuda-"))]
