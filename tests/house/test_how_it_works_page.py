"""docs/how-it-works.md leads to the places that it names."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "how-it-works.md").read_text(encoding="utf-8")
_PLACE = re.compile(r"((?:`\w+`(?:, )?)+) in \[[^]]*\]\(\.\./([^)#]+)\)")


def places() -> Iterator[tuple[str, str]]:
    """Each name that the page says to be in a file, and that file."""
    for names, file in _PLACE.findall(PAGE):
        yield from ((name, file) for name in re.findall(r"\w+", names))


def defined(file: Path) -> set[str]:
    """The names that a module defines, and those of its classes' methods."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            found.add(node.name)
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            found.add(node.id)
    return found


def test_each_name_is_in_the_file_that_the_page_names() -> None:
    found = list(places())
    assert len(found) > 25
    assert [(name, file) for name, file in found if name not in defined(ROOT / file)] == []


def test_each_file_that_the_page_links_is_there() -> None:
    links = re.findall(r"\]\((\.\./[^)#]+)", PAGE)
    assert [link for link in links if not (ROOT / "docs" / link).exists()] == []


def test_each_room_is_on_the_page() -> None:
    """A folder of the product that the page does not link is one that a newcomer does not find."""
    floors = ("launcher", "elastic_agent", "adapters", "master", "rendezvous")
    rooms = {file.parent for floor in floors for file in (ROOT / floor).rglob("__init__.py")}
    rooms -= {ROOT / "rendezvous" / "store" / "etcd" / "proto"}  # generated
    linked = {(ROOT / "docs" / link).resolve() for link in re.findall(r"\]\((\.\./[^)#]+)", PAGE)}
    folders = {place if place.is_dir() else place.parent for place in linked}
    assert sorted(str(room.relative_to(ROOT)) for room in rooms - folders) == []
